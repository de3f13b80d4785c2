"""The peak of memory that a plan promises, and the fastest strategy whose peak fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensoropt.plan.peak_margin import ESTIMATE, OVER, SUM
from tensoropt.planner.prices.estimates import can_be_estimated, estimated_bytes
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.planner.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["PredictedPeak", "evenly", "fitting_point", "predicted_peak"]

_LEAST_DRY_RUNS, _MOST_DRY_RUNS = 2, 6
_DRY_RUN_OPERATORS = 8000
"""Operators emitted in all dry runs of a request, roughly; TensorFlow takes some milliseconds for
each. No clock is asked, so that the same request has the same plan on any machine."""
_MOST_ESTIMATES = 12
"""Points that are estimated at once, in about the time of a dry run."""
_UNTOLD = 1.1
"""Factor by which estimates of two points may be wrong relative to each other."""


@dataclass(frozen=True, slots=True)
class PredictedPeak:
    """The most memory that a step takes on one device.

    Attributes:
        bytes: all of it.
        from_dry_run: whether the step was emitted as it will run, and its kernels followed; else
            the script's operators were, which is some per cent off.
        steps: of the reshardings in it.
        note: why a dry run failed, where one was tried.
        has_to_fit: whether the memory limit holds for it. Where a request has no dry runs, the sum
            of the search alone has to fit.
    """

    bytes: int
    from_dry_run: bool
    steps: ReshardSteps = field(compare=False)
    note: str = ""
    has_to_fit: bool = True

    def excess_bytes(self, limit_bytes: int) -> int:
        """By how much it is above a limit that holds for it."""
        return max(0, self.bytes - limit_bytes) if self.has_to_fit else 0


def evenly(count: int, most: int) -> list[int]:
    """At most so many of the numbers below a count, spread evenly, both ends among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})


def predicted_peak(
    request: Request, problem: GraphProblem, strategy: Sequence[int]
) -> PredictedPeak:
    """The peak of one strategy of a problem, by its configurations' numbers.

    The estimate comes first. No dry run follows where the estimate is far above the memory limit,
    or far below it and the request saves dry runs.
    """
    configurations = problem.configurations(strategy)
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    steps = ReshardSteps(problem.mesh, cost.collective_nanoseconds)
    planned, dry_run = request.strategy(problem, strategy), request.dry_run_peak
    if dry_run is None:
        return PredictedPeak(estimated_bytes(request, planned, steps), False, steps, "", False)
    if can_be_estimated(request):
        estimated = estimated_bytes(request, planned, steps)
        limit = request.limit_bytes(problem.mesh.size)
        is_far_below = request.saves_dry_runs and ESTIMATE * estimated <= limit
        if is_far_below or estimated > OVER * limit:
            return PredictedPeak(estimated, False, steps)
    found = dry_run(problem.mesh, configurations, steps, request.microbatches, request.rewrites)
    if not isinstance(found, str):
        return PredictedPeak(found.bytes, True, steps)
    note = f"peak memory is estimated, within about 10 %: its dry run failed ({found})"
    return PredictedPeak(estimated_bytes(request, planned, steps), False, steps, note)


def fitting_point(
    request: Request, problem: GraphProblem, frontier: Frontier
) -> tuple[int, PredictedPeak]:
    """The fastest point of a frontier whose memory and peak fit.

    The memory that the search adds up is at most the limit divided by the safety factor, the peak
    at most the limit. Where the peak is higher, the next point that is tried is the fastest whose
    estimated peak fits, scaled as the first dry run tells. Without estimates the next point keeps
    less memory by as much as the peak was too high, but passes over no more than its share of the
    points that are left. A peak falls by at most a few times what memory falls (`SUM`): where that
    cannot suffice, no other point is tried. A peak near the limit takes a dry run, about as long
    as building the execution graph; few dry runs are made.

    Args:
        request: has the limit.
        problem: that was searched.
        frontier: of the problem, with some point whose memory fits.

    Returns:
        The point and its peak; where none that was tried fits, that of the lowest peak.
    """
    limit = request.limit_bytes(problem.mesh.size)
    point = frontier.fastest(request.usable_bytes(problem.mesh.size))
    tried: list[tuple[int, PredictedPeak]] = []
    emitted = max(len(request.graph) * request.microbatches, 1)
    left = max(_LEAST_DRY_RUNS, min(_MOST_DRY_RUNS, _DRY_RUN_OPERATORS // emitted))
    estimates: dict[int, int] = {}
    while left:
        peak = predicted_peak(request, problem, frontier.strategies[point].tolist())
        tried.append((point, peak))
        excess = peak.excess_bytes(limit)
        left -= peak.from_dry_run or bool(peak.note)
        if not excess or excess > SUM * int(frontier.memory[point] - frontier.memory[0]):
            break  # or no peak of less memory is lower by as much
        if len(tried) == 1 and can_be_estimated(request):
            spread = evenly(point + 1, _MOST_ESTIMATES)
            estimates = _estimates(request, problem, frontier, spread)
            near = _likely(estimates, point, limit / peak.bytes)
            if near is not None:  # the fastest that fits is before the next one
                after = min(number for number in estimates if number > near)
                between = [near + 1 + n for n in evenly(after - near - 1, _MOST_ESTIMATES)]
                estimates |= _estimates(request, problem, frontier, between)
        if estimates:
            found = _likely(estimates, point, limit / peak.bytes)
            if found is None:
                break
            point = found
            continue
        wanted = int(frontier.memory[point]) - excess
        smaller = int(np.searchsorted(frontier.memory, wanted, side="right")) - 1
        share = -(-point // max(left, 1))
        point = 0 if left == 1 else min(point - 1, max(smaller, point - share))
    return tried[-1] if not excess else min(tried, key=lambda each: each[1].bytes)


def _estimates(
    request: Request, problem: GraphProblem, frontier: Frontier, points: Sequence[int]
) -> dict[int, int]:
    """Estimated peaks of some points, by their numbers."""
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    steps = ReshardSteps(problem.mesh, cost.collective_nanoseconds)
    found = {}
    for point in points:
        strategy = request.strategy(problem, frontier.strategies[point].tolist())
        found[point] = estimated_bytes(request, strategy, steps)
    return found


def _likely(estimates: Mapping[int, int], tried: int, lower: float) -> int | None:
    """The fastest point whose peak is likely to fit; else the point of the least estimate, or None
    where that is clearly above the limit.

    Args:
        estimates: of peaks, by points.
        tried: the point whose dry run has failed to fit.
        lower: the limit over the peak of that dry run.
    """
    most = estimates.get(tried, max(estimates.values())) * lower
    slower = [point for point in estimates if point < tried]
    fitting = [point for point in slower if estimates[point] <= most]
    if fitting:
        return max(fitting)
    least = min(slower, key=estimates.__getitem__, default=None)
    return None if least is None or estimates[least] > _UNTOLD * most else least
