"""Strategies of a request whose branches run side by side, on devices of their own."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.errors import GraphError
from tensoropt.pipeline.branches.forks import REST, find_fork, two_sides
from tensoropt.pipeline.branches.side_by_side import pipelines_side_by_side
from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.planner.request import Request
from tensoropt.planner.searches.pipeline_search import PipelineSearch
from tensoropt.planner.searches.step_parts import StepParts
from tensoropt.search.watch import seconds_left
from tensoropt.transformations.microbatches.cut import cut_along_batch

__all__ = ["branches_side_by_side"]


def branches_side_by_side(
    request: Request, limit: int | None
) -> list[tuple[PipelineSearch, Pipeline]]:
    """What undercuts a time, each with the search that knows its stages; the rest is not searched.

    Quantities of devices are looked at in the order of a bound: sides and rest whose devices share
    all work evenly, without sums or resharding. Once one fits the memory, the others have to be
    faster. Where nothing falls apart, or no stages can have the sides, there are none. The search
    ends where the current `Watch` does.

    Args:
        request: the step, on all of its devices.
        limit: nanoseconds of a step; None for no limit.
    """
    if request.devices == 1:
        return []
    try:
        parts = StepParts.of(request, request.devices)
    except GraphError:  # nothing of the step depends on a batch
        return []
    searches: dict[bytes, PipelineSearch | None] = {}
    found: list[tuple[PipelineSearch, Pipeline]] = []
    start, usable = parts.cost.step_nanoseconds(), request.usable_bytes(request.devices)
    for least, devices, block in _divided(request, parts):
        if (limit is not None and least + start >= limit) or not seconds_left():
            break
        key = block.tobytes()
        if key not in searches:
            searches[key] = _search(request, parts, block)
        search = searches[key]
        if search is None:
            continue
        made = pipelines_side_by_side(search.problem(search.profile), search.profile, devices)
        found += [(search, each) for each in made if limit is None or each.time + start < limit]
        fitting = [each.time + start for _, each in found if each.memory <= usable]
        if fitting and limit is not None:
            limit = min(fitting)
    return found


def _divided(request: Request, parts: StepParts) -> list[tuple[float, tuple[int, int], Int64Array]]:
    """Two sides for each quantity of devices, by the nanoseconds that a step takes at least: that,
    the devices of each side, and int64[components], the side of each or the rest."""
    work = _Work.of(parts, request)
    alone = work.on(1).tolist()
    fork = find_fork(alone, [(maker, reader) for maker, reader, _ in parts.costs.atoms.edges])
    if fork is None or cut_along_batch(request.graph, request.batch_placeholders, 1).refusals:
        return []
    found = []
    sizes = PipelineSearch(request, request.devices, (2, 2), (1,), parts=parts).sizes
    for first in sizes:
        devices = first, request.devices - first
        block = two_sides(fork, alone, devices) if devices[1] in sizes else None
        if block is not None:
            found.append((work.least(block, devices), devices, block))
    return sorted(found, key=lambda each: each[0])


def _search(request: Request, parts: StepParts, block: Int64Array) -> PipelineSearch | None:
    """The prices of these sides; None if no stages can have them."""
    search = PipelineSearch(request, request.devices, (2, 2), (1,), parts=parts, block=block)
    try:
        search.stages_by_blocks([0, int(block.max())])
    except GraphError:
        return None
    return search


class _Work:
    """Nanoseconds of components, of which devices share all but the start of kernels."""

    def __init__(self, starting: Float64Array, shared: Float64Array) -> None:
        self._starting, self._shared = starting, shared

    @classmethod
    def of(cls, parts: StepParts, request: Request) -> _Work:
        costs = parts.costs
        forward, backward, _ = costs.at(costs.growth.examples)
        device = request.cluster_at(request.devices).device
        kernels = [
            1 + len(costs.differentiated.get(atom.operator, ())) for atom in costs.atoms.atoms
        ]
        time = (forward + backward).astype(np.float64)
        starting = np.minimum(time, np.array(kernels) * device.operator_overhead_seconds * 1e9)
        return cls(starting, time - starting)

    def on(self, devices: int) -> Float64Array:
        """float64[components], on so many devices."""
        return self._starting + self._shared / devices

    def least(self, block: Int64Array, devices: tuple[int, int]) -> float:
        """What a step takes at least."""
        first, _, _ = np.bincount(block, self.on(devices[0]), REST + 1).tolist()
        _, second, rest = np.bincount(block, self.on(devices[1]), REST + 1).tolist()
        return float(max(first, second) + rest)
