"""Strategies of a request whose branches run side by side, on devices of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import numpy as np

from tensoropt.errors import GraphError
from tensoropt.pipeline.branches.decomposition import decomposed_by_work
from tensoropt.pipeline.branches.divisions import Divisions, Side, Work
from tensoropt.pipeline.branches.forks import forked
from tensoropt.pipeline.branches.side_by_side import blocks_of, in_order, pipelines_side_by_side
from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.planner.request import Request
from tensoropt.planner.searches.pipeline_search import PipelineSearch
from tensoropt.planner.searches.step_parts import StepParts
from tensoropt.search.watch import seconds_left
from tensoropt.transformations.microbatches.cut import cut_along_batch

__all__ = ["branches_side_by_side"]

_MOST_PRICED = 12
"""Divisions of devices that are priced, those with the least bounds: CANDLE-Uno's fastest on 12 to
192 devices is among the first three."""


def branches_side_by_side(
    request: Request, limit: int | None
) -> list[tuple[PipelineSearch, Pipeline]]:
    """The pipelines that undercut a time, each with the search that knows its stages.

    Divisions of devices are priced in the order of a bound: sides whose devices share all work
    evenly, without sums or resharding. Once one fits the memory, the others have to be faster.
    Where nothing falls apart, or no stages can have the sides, there are none. The search ends
    where the current `Watch` does.

    Args:
        request: the step, on all of its devices.
        limit: nanoseconds of a step; None for no limit.
    """
    if request.devices == 1:
        return []
    try:
        search = _BranchSearch(request)
    except GraphError:  # nothing of the step depends on a batch
        return []
    return search.within(limit)


class _BranchSearch:
    def __init__(self, request: Request) -> None:
        self._request = request
        self._parts = StepParts.of(request, request.devices)
        self._edges = [(maker, reader) for maker, reader, _ in self._parts.costs.atoms.edges]
        self._work = _work_of(self._parts, request)
        self._first: PipelineSearch | None = None

    def within(self, limit: int | None) -> list[tuple[PipelineSearch, Pipeline]]:
        """See `branches_side_by_side`."""
        start = self._parts.cost.step_nanoseconds()
        usable = self._request.usable_bytes(self._request.devices)
        found: list[tuple[PipelineSearch, Pipeline]] = []
        for bound, sides in self._promising():
            if (limit is not None and bound + start >= limit) or not seconds_left():
                break
            for search, each in self._priced(sides, None if limit is None else limit - start):
                found.append((search, each))
                if each.memory <= usable and limit is not None:
                    limit = min(limit, each.time + start)
        return found

    def _promising(self) -> Iterator[tuple[float, tuple[Side, ...]]]:
        """Divisions that have an order of stages, by their bounds."""
        request, parts = self._request, self._parts
        alone = self._work.on(1).tolist()
        fork = forked(decomposed_by_work(alone, self._edges), alone)
        if not fork.branches:
            return
        if cut_along_batch(request.graph, request.batch_placeholders, 1).refusals:
            return
        states = [state.atoms for state in parts.costs.atoms.states.values() if state.shared]
        divisions = Divisions(self._work, self._sizes(), states)
        ordered = (
            (division.bound, sides)
            for division in divisions.of(fork, request.devices)
            if (sides := in_order(division.sides, self._edges, parts.links.machine)) is not None
        )
        yield from islice(ordered, _MOST_PRICED)

    def _sizes(self) -> list[int]:
        """Numbers of devices that a side may have: of a machine, or of whole machines that divide
        the examples."""
        links, examples = self._parts.links, self._parts.costs.growth.examples
        whole = range(links.machine, self._request.devices, links.machine)
        search = PipelineSearch(
            self._request, self._request.devices, (2, 2), (1,), parts=self._parts
        )
        sizes = {*search.sizes, *whole}
        return sorted(
            size for size in sizes if size <= examples and examples % -(-size // links.machine) == 0
        )

    def _priced(
        self, sides: tuple[Side, ...], limit: int | None
    ) -> list[tuple[PipelineSearch, Pipeline]]:
        """Pipelines of some sides that undercut a time and can be executed."""
        request, parts = self._request, self._parts
        block = blocks_of(sides, len(parts.costs.atoms))
        search = PipelineSearch(
            request, request.devices, (2, 2), (1,), parts=parts, block=block, like=self._first
        )
        self._first = self._first or search
        edges = {(int(block[source]), int(block[target])) for source, target in self._edges}
        made = pipelines_side_by_side(
            search.problem(search.profile), search.profile, sides, sorted(edges)
        )
        search.ended_by = self._first.ended_by
        found = [(search, each) for each in made if limit is None or each.time < limit]
        with suppress(GraphError):  # no stages can have these sides
            for _, each in found[:1]:
                search.stage_of(each)
            return found
        return []


def _work_of(parts: StepParts, request: Request) -> Work:
    costs = parts.costs
    forward, backward, _ = costs.at(costs.growth.examples)
    device = request.cluster_at(request.devices).device
    kernels = [1 + len(costs.differentiated.get(atom.operator, ())) for atom in costs.atoms.atoms]
    time = (forward + backward).astype(np.float64)
    starting = np.minimum(time, np.array(kernels) * device.operator_overhead_seconds * 1e9)
    return Work(starting, time - starting)
