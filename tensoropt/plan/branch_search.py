"""Strategies of a request whose branches run side by side, on devices of their own."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.errors import GraphError
from tensoropt.pipeline.branches.forks import REST, find_fork, two_sides
from tensoropt.pipeline.branches.side_by_side import pipelines_side_by_side
from tensoropt.pipeline.microbatches.cut import cut_along_batch
from tensoropt.pipeline.stages.pipeline import Pipeline
from tensoropt.plan.pipeline_search import PipelineSearch
from tensoropt.plan.request import Request
from tensoropt.plan.step_parts import StepParts
from tensoropt.search.watch import seconds_left

__all__ = ["branches_side_by_side"]


def branches_side_by_side(
    request: Request, limit: int | None
) -> list[tuple[PipelineSearch, Pipeline]]:
    """What undercuts a time, each with the search that knows its stages; the rest is not searched.

    Quantities of devices are looked at in the order of a bound: sides and rest whose devices share
    all work evenly, without sums or resharding. Where nothing falls apart there are none.

    Args:
        request: the step, on all of its devices.
        limit: nanoseconds of a step; None for no limit.
    """
    try:
        parts = StepParts.of(request, request.devices)
    except GraphError:  # nothing of the step depends on a batch
        return []
    work = _Work.of(parts, request)
    edges = [(maker, reader) for maker, reader, _ in parts.costs.atoms.edges]
    fork = find_fork(work.on(1).tolist(), edges)
    if fork is None or cut_along_batch(request.graph, request.batch_placeholders, 1).refusals:
        return []
    searches: dict[bytes, PipelineSearch] = {}
    ordered = []
    for devices in _quantities(request, parts):
        block = two_sides(fork, work.on(1).tolist(), devices)
        if block is not None:
            ordered.append((work.least(block, devices), devices, block))
    found: list[tuple[PipelineSearch, Pipeline]] = []
    start = parts.cost.step_nanoseconds()
    for least, devices, block in sorted(ordered, key=lambda each: each[0]):
        if (limit is not None and least + start >= limit) or (found and not seconds_left()):
            break
        search = searches.setdefault(block.tobytes(), _search(request, parts, block))
        made = pipelines_side_by_side(search.problem(search.profile), search.profile, devices)
        found += [(search, each) for each in made if limit is None or each.time + start < limit]
        times = [each.time + start for _, each in found]
        limit = min(times, default=limit) if limit is not None else None
    return found


def _search(request: Request, parts: StepParts, block: Int64Array) -> PipelineSearch:
    return PipelineSearch(request, request.devices, (2, 2), (1,), parts=parts, block=block)


def _quantities(request: Request, parts: StepParts) -> list[tuple[int, int]]:
    """Devices of each side that make all of them."""
    sizes = PipelineSearch(request, request.devices, (2, 2), (1,), parts=parts).sizes
    return [(n, request.devices - n) for n in sizes if request.devices - n in sizes]


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
