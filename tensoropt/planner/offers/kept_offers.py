"""Offers in files, from which another process makes the same plans without a search.

For an offer of strategies, the values have the configuration number of every node for each point.
For an offer of pipelines, they have the pipelines, and the strategies found by the searches of
their stages. The step, its problem and its prices are computed again from the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Len
from pydantic import Discriminator, Field, Tag

from tensoropt.converters import MeshAxes, Natural, Number, Positive, Text
from tensoropt.errors import PlanError
from tensoropt.parallel.mesh import Shares, Units
from tensoropt.pipeline.stages.pipeline import Pipeline, Stage
from tensoropt.planner.offers.number_rows import rows_of, texts_of
from tensoropt.planner.offers.offer import Offer, Points
from tensoropt.planner.offers.pipelines import Pipelines
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import searched_problem
from tensoropt.planner.searches.pipeline_search import PipelineSearch
from tensoropt.problem.edges.tensor_reuse import Space
from tensoropt.search.pareto.frontier import EndedBy, Frontier
from tensoropt.transformations.rewritten.application import Rewrite, rewritten
from tensoropt.transformations.staged.order_of_passes import Schedule
from tensoropt.transformations.staged.simulated_time import StagePart

__all__ = ["KeptOffer", "kept_offer", "offer_of"]


_Row = Annotated[str, Field(pattern="^[0-9]+( [0-9]+)*$")]
_Change = "([0-9]+|[0-9]+:[0-9]+)"
_Rows = Annotated[tuple[Annotated[str, Field(pattern=f"^({_Change}( {_Change})*)?$")], ...], Len(1)]


@dataclass(frozen=True, slots=True)
class _Step:
    """The step of an offer."""

    rewrites: tuple[Rewrite, ...]
    space: Space
    microbatches: Positive
    shares: Shares | None
    units: Units | None


@dataclass(frozen=True, slots=True)
class _Strategies:
    """Points of an offer of strategies."""

    mesh: MeshAxes
    exact: bool
    within: Annotated[Number, Ge(0)] | None
    ended_by: EndedBy
    eliminations: Mapping[str, Natural]
    points: _Rows


@dataclass(frozen=True, slots=True)
class _StageStrategies:
    """The strategies of stages on a number of devices."""

    devices: Positive
    examples: Positive
    rows: _Rows


@dataclass(frozen=True, slots=True)
class _Search:
    """A search of pipelines."""

    block: _Row
    ended_by: EndedBy
    strategies: tuple[_StageStrategies, ...]


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """The number of a search, and the fields of a pipeline that it has found."""

    search: Natural
    stages: Annotated[tuple[Stage, ...], Len(2)]
    copies: Positive
    microbatches: Positive
    schedule: Schedule
    time: Natural
    memory: Natural
    parts: tuple[tuple[StagePart, ...], ...]
    order: tuple[Natural, ...]


@dataclass(frozen=True, slots=True)
class _Pipelines:
    """Points of an offer of pipelines."""

    kind: Text
    searches: Annotated[tuple[_Search, ...], Len(1)]
    pipelines: Annotated[tuple[_Pipeline, ...], Len(1)]


@dataclass(frozen=True, slots=True)
class _StrategiesOffer:
    step: _Step
    strategies: _Strategies


@dataclass(frozen=True, slots=True)
class _PipelinesOffer:
    step: _Step
    pipelines: _Pipelines


def _kind(offer: Any) -> str:
    """The name that tells an offer's kind, for an offer or its JSON values."""
    is_pipelines = isinstance(offer, _PipelinesOffer)
    is_pipelines |= isinstance(offer, dict) and "pipelines" in offer
    return "pipelines" if is_pipelines else "strategies"


KeptOffer = Annotated[
    Annotated[_StrategiesOffer, Tag("strategies")] | Annotated[_PipelinesOffer, Tag("pipelines")],
    Discriminator(_kind),
]


def kept_offer(offer: Offer, numbers: Sequence[int]) -> KeptOffer:
    """Return some points of an offer.

    Args:
        offer: an offer of strategies or of pipelines.
        numbers: the numbers of the points, ascending.
    """
    request = offer.request
    pieces = request.shares, request.units
    step = _Step(request.rewrites, request.space, request.microbatches, *pieces)
    if isinstance(offer, Strategies):
        return _StrategiesOffer(step, _strategies(offer, numbers))
    assert isinstance(offer, Pipelines), "there are two classes of offers"
    return _PipelinesOffer(step, _pipelines(offer, numbers))


def offer_of(request: Request, kept: KeptOffer, points: Points) -> Offer:
    """Return the offer that `kept_offer` described, with the kept points alone.

    Args:
        request: the request for the script's step, on the devices of the plans.
        kept: the points that `kept_offer` returned for an equal request.
        points: the bytes and executed steps of the kept points.

    Raises:
        PlanError: if the step is not that of the offer.
    """
    step = _step(request, kept.step)
    if isinstance(kept, _StrategiesOffer):
        return _strategies_of(step, kept.strategies, points)
    return _pipelines_of(step, kept.pipelines)


def _step(request: Request, step: _Step) -> Request:
    """Return the request for the step of an offer."""
    if step.rewrites:
        graph = rewritten(request.graph, step.rewrites, request.roots)
        request = request.of_rewritten(step.rewrites, graph)
    request = replace(request, space=step.space, shares=step.shares, units=step.units)
    count = step.microbatches
    return request if count == request.microbatches else request.in_microbatches(count)


def _strategies(offer: Strategies, numbers: Sequence[int]) -> _Strategies:
    frontier = offer.frontier
    return _Strategies(
        offer.problem.mesh.axes,
        frontier.exact,
        frontier.within,
        frontier.ended_by,
        dict(frontier.eliminations),
        tuple(texts_of(frontier.strategies[list(numbers)].astype(np.int64))),
    )


def _strategies_of(request: Request, kept: _Strategies, points: Points) -> Strategies:
    meshes = (refinement.mesh for refinement in request.meshes(request.devices))
    mesh = next((mesh for mesh in meshes if mesh.axes == kept.mesh), None)
    problem, strategies = searched_problem(request, request.devices, mesh), rows_of(kept.points)
    counts = [len(group.options) for group in problem.choices]
    if strategies.shape[1] != len(counts) or (strategies >= np.array(counts)).any():
        raise _of_another_step()
    memory, _ = problem.problem.costs(strategies)
    if memory.tolist() != [memory for memory, _ in points]:
        raise _of_another_step()
    frontier = Frontier(
        memory,
        np.array([step for _, step in points], np.int64),
        strategies.astype(np.int32),
        kept.eliminations,
        kept.exact,
        kept.within,
        kept.ended_by,
    )
    return Strategies(request, problem, frontier, frontier)


def _pipelines(offer: Pipelines, numbers: Sequence[int]) -> _Pipelines:
    searches: list[PipelineSearch] = []
    pipelines = []
    strategies: list[dict[tuple[int, int], _StageStrategies]] = []
    for search, pipeline in map(offer.pipelines.__getitem__, numbers):
        if search not in searches:
            searches.append(search)
            strategies.append({})
        number = searches.index(search)
        for key, rows in search.strategies_of(pipeline).items():
            strategies[number].setdefault(key, _StageStrategies(*key, tuple(texts_of(rows))))
        fields = (getattr(pipeline, name) for name in Pipeline.__slots__)
        pipelines.append(_Pipeline(number, *fields))
    return _Pipelines(
        offer.kind,
        tuple(
            _Search(texts_of(search.block[np.newaxis])[0], search.ended_by, tuple(rows.values()))
            for search, rows in zip(searches, strategies, strict=True)
        ),
        tuple(pipelines),
    )


def _pipelines_of(request: Request, kept: _Pipelines) -> Pipelines:
    searches = [_search_of(request, search) for search in kept.searches]
    pipelines = [
        (searches[item.search], Pipeline(*(getattr(item, name) for name in Pipeline.__slots__)))
        for item in kept.pipelines
    ]
    return Pipelines(kept.kind, request, pipelines)


def _search_of(request: Request, kept: _Search) -> PipelineSearch:
    """Return a search that has the kept strategies of stages instead of searching them."""
    known = {(item.devices, item.examples): rows_of(item.rows) for item in kept.strategies}
    block = rows_of([kept.block])[0]
    devices = request.devices
    search = PipelineSearch(request, devices, (2, devices), (), block=block, known=known)
    if len(block) != len(search.parts.costs.atoms.atoms):
        raise _of_another_step()
    search.ended_by = kept.ended_by
    return search


def _of_another_step() -> PlanError:
    return PlanError(
        "a kept frontier is used for the step for which it was searched. Got the frontier of "
        "another step; search it again."
    )
