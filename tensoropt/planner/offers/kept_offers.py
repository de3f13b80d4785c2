"""Offers as JSON values, from which another process makes the same plans without a search.

For an offer of strategies, the values have the configuration number of every node for each point.
For an offer of pipelines, they have the pipelines, and the strategies found by the searches of
their stages. The step, its problem and its prices are computed again from the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tensoropt.errors import PlanError
from tensoropt.pipeline.stages.pipeline import Pipeline, Stage
from tensoropt.planner.offers.number_rows import rows_of, texts_of
from tensoropt.planner.offers.offer import Offer, Points
from tensoropt.planner.offers.pipelines import Pipelines
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import searched_problem
from tensoropt.planner.searches.pipeline_search import PipelineSearch
from tensoropt.problem.edges.tensor_reuse import Space
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.transformations.rewritten.application import Rewrite, rewritten
from tensoropt.transformations.staged.schedule import Part

__all__ = ["kept_offer", "offer_of"]


def kept_offer(offer: Offer, numbers: Sequence[int]) -> dict[str, Any]:
    """Return some points of an offer as JSON values.

    Args:
        offer: an offer of strategies or of pipelines.
        numbers: the numbers of the points, ascending.
    """
    request = offer.request
    step = {
        "rewrites": [rewrite.to_json() for rewrite in request.rewrites],
        "space": asdict(request.space),
        "microbatches": request.microbatches,
    }
    if isinstance(offer, Strategies):
        return {"step": step, "strategies": _strategies(offer, numbers)}
    assert isinstance(offer, Pipelines), "there are two classes of offers"
    return {"step": step, "pipelines": _pipelines(offer, numbers)}


def offer_of(request: Request, values: Mapping[str, Any], points: Points) -> Offer:
    """Return the offer that `kept_offer` described, with the kept points alone.

    Args:
        request: the request for the script's step, on the devices of the plans.
        values: the values that `kept_offer` returned for an equal request.
        points: the bytes and nanoseconds of the kept points.

    Raises:
        PlanError: if the step is not that of the offer.
    """
    step = _step(request, values["step"])
    if "strategies" in values:
        return _strategies_of(step, values["strategies"], points)
    return _pipelines_of(step, values["pipelines"])


def _step(request: Request, values: Mapping[str, Any]) -> Request:
    """Return the request for the step of an offer."""
    rewrites = tuple(map(Rewrite.from_json, values["rewrites"]))
    if rewrites:
        graph = rewritten(request.graph, rewrites, request.roots)
        request = request.of_rewritten(rewrites, graph)
    request = replace(request, space=Space(**values["space"]))
    count = values["microbatches"]
    return request if count == request.microbatches else request.in_microbatches(count)


def _strategies(offer: Strategies, numbers: Sequence[int]) -> dict[str, Any]:
    frontier = offer.frontier
    return {
        "mesh": offer.problem.mesh.axes,
        "exact": frontier.exact,
        "within": frontier.within,
        "ended_by": frontier.ended_by,
        "eliminations": dict(frontier.eliminations),
        "points": texts_of(frontier.strategies[list(numbers)].astype(np.int64)),
    }


def _strategies_of(request: Request, values: Mapping[str, Any], points: Points) -> Strategies:
    devices, axes = request.devices, tuple(values["mesh"])
    meshes = [refinement.mesh for refinement in request.meshes(devices)]
    mesh = next((mesh for mesh in meshes if mesh.axes == axes), None)
    problem, strategies = searched_problem(request, devices, mesh), rows_of(values["points"])
    counts = [len(group.options) for group in problem.choices]
    if strategies.shape[1] != len(counts) or (strategies >= np.array(counts)).any():
        raise _of_another_step()
    memory, time = problem.problem.costs(strategies)
    if list(zip(memory.tolist(), time.tolist(), strict=True)) != points:
        raise _of_another_step()
    frontier = Frontier(
        memory,
        time,
        strategies.astype(np.int32),
        values["eliminations"],
        values["exact"],
        values["within"],
        values["ended_by"],
    )
    return Strategies(request, problem, frontier)


def _pipelines(offer: Pipelines, numbers: Sequence[int]) -> dict[str, Any]:
    searches: list[PipelineSearch] = []
    pipelines = []
    strategies: list[dict[tuple[int, int], list[str]]] = []
    for search, pipeline in map(offer.pipelines.__getitem__, numbers):
        if search not in searches:
            searches.append(search)
            strategies.append({})
        number = searches.index(search)
        for key, rows in search.strategies_of(pipeline).items():
            strategies[number].setdefault(key, texts_of(rows))
        pipelines.append({"search": number, **asdict(pipeline)})
    return {
        "kind": offer.kind,
        "searches": [
            {
                "block": texts_of(search.block[np.newaxis])[0],
                "ended_by": search.ended_by,
                "strategies": [
                    {"devices": devices, "examples": examples, "rows": rows}
                    for (devices, examples), rows in of_search.items()
                ],
            }
            for search, of_search in zip(searches, strategies, strict=True)
        ],
        "pipelines": pipelines,
    }


def _pipelines_of(request: Request, values: Mapping[str, Any]) -> Pipelines:
    searches = [_search_of(request, search) for search in values["searches"]]
    pipelines = [
        (
            searches[pipeline["search"]],
            Pipeline(
                tuple(Stage(**stage) for stage in pipeline["stages"]),
                pipeline["copies"],
                pipeline["microbatches"],
                pipeline["schedule"],
                pipeline["time"],
                pipeline["memory"],
                tuple(tuple(map(_part_of, parts)) for parts in pipeline["parts"]),
            ),
        )
        for pipeline in values["pipelines"]
    ]
    return Pipelines(values["kind"], request, pipelines)


def _part_of(values: Mapping[str, Any]) -> Part:
    needs = tuple((stage, number) for stage, number in values["needs"])
    return Part(values["forward"], values["backward"], needs)


def _search_of(request: Request, values: Mapping[str, Any]) -> PipelineSearch:
    """Return a search that has the kept strategies of stages instead of searching them."""
    known = {
        (kept["devices"], kept["examples"]): rows_of(kept["rows"]) for kept in values["strategies"]
    }
    block = rows_of([values["block"]])[0]
    devices = request.devices
    search = PipelineSearch(request, devices, (2, devices), (), block=block, known=known)
    if len(block) != len(search.parts.costs.atoms.atoms):
        raise _of_another_step()
    search.ended_by = values["ended_by"]
    return search


def _of_another_step() -> PlanError:
    return PlanError(
        "a kept frontier is used for the step for which it was searched. Got the frontier of "
        "another step; search it again."
    )
