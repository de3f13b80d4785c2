"""The search of strategies whose branches run side by side, on devices of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tensoropt.errors import GraphError
from tensoropt.pipeline.branches.decomposition import decomposed_by_work
from tensoropt.pipeline.branches.divisions import Divisions, Side, Work
from tensoropt.pipeline.branches.forks import forked
from tensoropt.pipeline.branches.least_time import LeastTime
from tensoropt.pipeline.branches.side_by_side import blocks_of, in_order, pipelines_side_by_side
from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.planner.request import Request
from tensoropt.planner.searches.pipeline_search import PipelineSearch
from tensoropt.planner.searches.step_parts import StepParts
from tensoropt.search.watch import seconds_left
from tensoropt.transformations.microbatches.cut import cut_along_batch

__all__ = ["BranchPipelines", "branches_side_by_side"]

_MOST_PRICED = 12
"""The divisions of devices that are priced, in the order of their bounds. For CANDLE-Uno on 12 to
192 devices, the fastest is among the first three."""


@dataclass(frozen=True, slots=True, eq=False)
class BranchPipelines:
    """The result of a search.

    Attributes:
        pipelines: the pipelines, each with the search that knows its stages.
        is_cut_short: whether time has ended the search.
    """

    pipelines: tuple[tuple[PipelineSearch, Pipeline], ...] = ()
    is_cut_short: bool = False


def branches_side_by_side(request: Request, limit: int | None) -> BranchPipelines:
    """Return the pipelines that undercut a time.

    Divisions of devices are priced in the order of a bound: the devices of a side share all work
    evenly, without sums or resharding. A division is left out if its `LeastTime` does not undercut
    the time. After a division that fits the memory, further ones have to be faster. After one that
    needs more than all devices have together, no further ones are priced, since all divisions hold
    about as much. There are no pipelines if the step has no branches, or if no stages can run the
    sides. The search ends with the current `Watch`.

    Args:
        request: the step, on all of its devices.
        limit: the nanoseconds of a step to undercut; None for no limit.
    """
    if request.devices == 1:
        return BranchPipelines()
    try:
        search = _BranchSearch(request)
    except GraphError:  # no operator of the step depends on a batch
        return BranchPipelines()
    pipelines = search.within(limit)
    return BranchPipelines(tuple(pipelines), search.is_cut_short)


class _BranchSearch:
    """The search of `branches_side_by_side`, for one request."""

    def __init__(self, request: Request) -> None:
        self._request, self._usable = request, request.usable_bytes(request.devices)
        self._parts = StepParts.of(request, request.devices)
        self._edges = [(maker, reader) for maker, reader, _ in self._parts.costs.atoms.edges]
        costs = self._parts.costs
        forward, backward, *_ = costs.at(costs.growth.examples)
        differentiated = (costs.differentiated.get(a.operator, ()) for a in costs.atoms.atoms)
        kernels = np.array([1 + len(numbers) for numbers in differentiated])
        overhead = request.cluster_at(request.devices).device.operator_overhead_seconds * 1e9
        self._work = Work.of_kernels(forward + backward, kernels, overhead)
        self._least = LeastTime(costs, overhead)
        self._first: PipelineSearch | None = None
        self._fits_together = True
        self.is_cut_short = False

    def within(self, limit: int | None) -> list[tuple[PipelineSearch, Pipeline]]:
        """Return the pipelines of `branches_side_by_side`."""
        start = self._parts.cost.step_nanoseconds()
        pipelines: list[tuple[PipelineSearch, Pipeline]] = []
        for bound, sides in self._promising():
            if limit is not None and bound + start >= limit:
                break
            self.is_cut_short |= not seconds_left()
            if self.is_cut_short or not self._fits_together:
                break
            if limit is not None and self._least.of(sides, self._edges) + start >= limit:
                continue
            for search, pipeline in self._priced(sides, None if limit is None else limit - start):
                pipelines.append((search, pipeline))
                if pipeline.memory <= self._usable and limit is not None:
                    limit = min(limit, pipeline.time + start)
        return pipelines

    def _promising(self) -> Iterator[tuple[float, tuple[Side, ...]]]:
        """Yield the bounds and the sides of divisions whose sides can be ordered as stages."""
        request, parts = self._request, self._parts
        work = self._work.on(1).tolist()
        fork = forked(decomposed_by_work(work, self._edges), work)
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
        """Return the numbers of devices that a side may have.

        They are those of a stage, and any number of whole machines. The machines of a side have to
        divide the examples.
        """
        machine, examples = self._parts.links.machine, self._parts.costs.growth.examples
        whole_machines = range(machine, self._request.devices, machine)
        sizes = {*self._parts.stage_sizes((2, 2)), *whole_machines}
        return sorted(
            size for size in sizes if size <= examples and examples % -(-size // machine) == 0
        )

    def _priced(
        self, sides: tuple[Side, ...], limit: int | None
    ) -> list[tuple[PipelineSearch, Pipeline]]:
        """Return the pipelines of given sides that undercut a time and can be executed."""
        request, parts = self._request, self._parts
        block = blocks_of(sides, len(parts.costs.atoms))
        search = PipelineSearch(
            request, request.devices, (2, 2), (1,), parts=parts, block=block, like=self._first
        )
        self._first = self._first or search
        for side in sides:
            if not seconds_left():
                self.is_cut_short = True
                return []
            search.profile.price(side.devices, search.examples, 1)
        edges = {(int(block[source]), int(block[target])) for source, target in self._edges}
        frontier = pipelines_side_by_side(
            search.problem(search.profile), search.profile, sides, sorted(edges)
        )
        search.ended_by = self._first.ended_by
        for least in frontier[:1]:
            held = sum(stage.devices * stage.memory for stage in least.stages)
            self._fits_together = held <= self._usable * request.devices
        faster = [pipeline for pipeline in frontier if limit is None or pipeline.time < limit]
        with suppress(GraphError):  # no stages can run these sides
            for pipeline in faster[:1]:
                search.stage_of(pipeline)
            return [(search, pipeline) for pipeline in faster]
        return []
