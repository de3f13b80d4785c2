"""The predicted peak of memory of a strategy, and the fastest strategy whose peak fits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensoropt.parallel.strategy import Strategy
from tensoropt.plan.compared_numbers import SAME_TIME
from tensoropt.plan.dry_run_bounds import ESTIMATE, OVER, SUM
from tensoropt.planner.prices.dry_runs import NO_TIME, emitted_operators
from tensoropt.planner.prices.estimates import can_be_estimated, estimated_bytes
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.planner.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.watch import seconds_left

__all__ = ["PredictedPeak", "evenly", "fitting_point", "predicted_peak"]

_LEAST_DRY_RUNS, _MOST_DRY_RUNS = 2, 6
"""The fewest and the most dry runs of a request."""
_DRY_RUN_OPERATORS = 8000
"""The approximate number of operators in all dry runs of a request; each takes some milliseconds.
This limit does not depend on a clock, so the same request has the same plan on any machine."""
_MOST_ESTIMATES = 12
"""The points that are estimated together, in about the time of a dry run."""
_LAST_SHARE = 0.97
"""The share of the limit at which the last dry run aims, since no other follows it."""
_RELATIVE_ERROR = 1.1
"""The factor by which the ratio of two estimates may be wrong."""


@dataclass(frozen=True, slots=True)
class PredictedPeak:
    """The predicted peak of memory of a step on one device.

    Attributes:
        bytes: the peak.
        from_dry_run: whether it comes from a dry run, which emits the step and follows its kernels.
            Otherwise it is estimated from the script's operators, with an error of some per cent.
        steps: the planned reshardings of the step.
        note: the reason why a dry run failed; empty if none did.
        has_to_fit: whether the memory limit applies to it. If a request has no dry runs, the limit
            applies to the sum of the search instead.
        is_bound: whether the peak is an upper bound, because there was no time for a dry run.
    """

    bytes: int
    from_dry_run: bool
    steps: ReshardSteps = field(compare=False)
    note: str = ""
    has_to_fit: bool = True
    is_bound: bool = False

    def excess_bytes(self, limit_bytes: int) -> int:
        """Return the bytes by which the peak exceeds a limit; 0 if the limit does not apply."""
        return max(0, self.bytes - limit_bytes) if self.has_to_fit else 0


def evenly(count: int, most: int) -> list[int]:
    """Return at most ``most`` numbers below ``count``, evenly spread from the first to the last."""
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})


def predicted_peak(
    request: Request, problem: GraphProblem, strategy: Sequence[int]
) -> PredictedPeak:
    """Return the predicted peak of a strategy of a problem.

    The peak is first estimated. It is not followed by a dry run if the estimate is far above the
    memory limit, or if it is far below and the request saves dry runs. If there is no time for a
    dry run, the peak is the most that the estimate allows.

    Args:
        request: the step.
        problem: the problem.
        strategy: the number of each node's configuration.
    """
    configurations = problem.configurations(strategy)
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    steps = ReshardSteps(problem.mesh, cost.collective_nanoseconds)
    planned, dry_run = request.strategy(problem, strategy), request.dry_run_peak
    if dry_run is None:
        estimated = _estimate(request, problem, strategy, planned, steps)
        return PredictedPeak(estimated, False, steps, "", False)
    if can_be_estimated(request):
        estimated = estimated_bytes(request, planned, steps)
        limit = request.limit_bytes(problem.mesh.size)
        is_far_below = request.saves_dry_runs and ESTIMATE * estimated <= limit
        if is_far_below or estimated > OVER * limit:
            return PredictedPeak(estimated, False, steps)
    peak = dry_run(problem.mesh, configurations, steps, request.microbatches, request.rewrites)
    if not isinstance(peak, str):
        return PredictedPeak(peak.bytes, True, steps)
    if peak == NO_TIME:
        most = math.ceil(ESTIMATE * _estimate(request, problem, strategy, planned, steps))
        return PredictedPeak(most, False, steps, is_bound=True)
    note = f"peak memory is estimated, within about 10 %: its dry run failed ({peak})"
    return PredictedPeak(_estimate(request, problem, strategy, planned, steps), False, steps, note)


def _estimate(
    request: Request,
    problem: GraphProblem,
    strategy: Sequence[int],
    planned: Strategy,
    steps: ReshardSteps,
) -> int:
    """Return the estimated peak in bytes.

    A step that cannot be estimated has what the search adds up, times the safety factor.
    """
    if can_be_estimated(request):
        return estimated_bytes(request, planned, steps)
    (memory,), _ = problem.problem.costs([strategy])
    return math.ceil(int(memory) * request.cluster_at(problem.mesh.size).safety_factor)


def fitting_point(
    request: Request, problem: GraphProblem, frontier: Frontier
) -> tuple[int, PredictedPeak]:
    """Return the fastest point of a frontier whose memory and peak fit.

    The memory that the search adds up has to fit the limit divided by the safety factor, and the
    peak has to fit the limit. Few points are tried, since a dry run takes about as long as building
    the execution graph.

    If a peak is too high, the next point is the fastest whose estimated peak fits; the error of the
    first estimate corrects the others. If that point fits, faster ones are tried (`_faster`). If
    peaks cannot be estimated, the next point has a memory that is smaller by the excess, but skips
    at most an equal share of the remaining points. Peaks fall by at most a few times the fall of
    memory (`SUM`). If this cannot suffice, no further point is tried.

    Args:
        request: the step and its memory limit.
        problem: the searched problem.
        frontier: its frontier, with at least one point whose memory fits.

    Returns:
        The point and its peak; if no tried point fits, the one with the lowest peak.
    """
    limit = request.limit_bytes(problem.mesh.size)
    point = frontier.fastest(request.usable_bytes(problem.mesh.size))
    tried: list[tuple[int, PredictedPeak]] = []
    emitted = max(emitted_operators(request, request.microbatches), 1)
    dry_runs_left = max(_LEAST_DRY_RUNS, min(_MOST_DRY_RUNS, _DRY_RUN_OPERATORS // emitted))
    estimates: dict[int, int] = {}
    while dry_runs_left:
        peak = predicted_peak(request, problem, frontier.strategies[point].tolist())
        tried.append((point, peak))
        excess = peak.excess_bytes(limit)
        dry_runs_left -= peak.from_dry_run or bool(peak.note)
        if not excess or excess > SUM * int(frontier.memory[point] - frontier.memory[0]):
            break  # the peak fits, or no point with less memory can be lower by the excess
        if len(tried) == 1 and can_be_estimated(request):
            spread = evenly(point + 1, _MOST_ESTIMATES)
            estimates = _estimates(request, problem, frontier, spread)
            near = _likely(estimates, point, limit / peak.bytes)
            if near is not None:
                # A faster one may fit, up to the next estimated point.
                after = min(number for number in estimates if number > near)
                between = [near + 1 + n for n in evenly(after - near - 1, _MOST_ESTIMATES)]
                estimates |= _estimates(request, problem, frontier, between)
        if estimates:
            share = _LAST_SHARE if dry_runs_left == 1 else 1.0
            likely = _likely(estimates, point, share * limit / peak.bytes)
            if likely is None:
                break
            point = likely
            continue
        wanted = int(frontier.memory[point]) - excess
        smaller = int(np.searchsorted(frontier.memory, wanted, side="right")) - 1
        share = -(-point // max(dry_runs_left, 1))
        point = 0 if dry_runs_left == 1 else min(point - 1, max(smaller, point - share))
    if excess:
        return min(tried, key=lambda entry: entry[1].bytes)
    return _faster(request, problem, frontier, tried, estimates, dry_runs_left)


def _faster(
    request: Request,
    problem: GraphProblem,
    frontier: Frontier,
    tried: Sequence[tuple[int, PredictedPeak]],
    estimates: Mapping[int, int],
    dry_runs: int,
) -> tuple[int, PredictedPeak]:
    """Return a point whose peak fits, about as fast as the slowest whose peak is known not to.

    The error of an estimate differs between points. So a point that fits may leave memory unused,
    because the error of the point that was tried before is larger. Faster points are tried by the
    error of the one that fits, as long as they may be faster by more than `SAME_TIME`.

    Args:
        request: the step and its memory limit.
        problem: the searched problem.
        frontier: its frontier.
        tried: the tried points with their peaks, of which the last one fits.
        estimates: estimated peaks, by points.
        dry_runs: the most dry runs.
    """
    limit, (best, peak) = request.limit_bytes(problem.mesh.size), tried[-1]
    above = min((point for point, _ in tried if point > best), default=best)
    while dry_runs and frontier.time[best] > (1 + SAME_TIME) * frontier.time[above]:
        most = estimates.get(best, peak.bytes) * limit / peak.bytes
        point = max((n for n in estimates if best < n < above and estimates[n] <= most), default=0)
        if not point or not seconds_left():
            break
        found = predicted_peak(request, problem, frontier.strategies[point].tolist())
        dry_runs -= found.from_dry_run or bool(found.note)
        if found.excess_bytes(limit):
            above = point
        else:
            best, peak = point, found
    return best, peak


def _estimates(
    request: Request, problem: GraphProblem, frontier: Frontier, points: Sequence[int]
) -> dict[int, int]:
    """Return the estimated peaks of some points, by their numbers."""
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    steps = ReshardSteps(problem.mesh, cost.collective_nanoseconds)
    estimates = {}
    for point in points:
        strategy = request.strategy(problem, frontier.strategies[point].tolist())
        estimates[point] = estimated_bytes(request, strategy, steps)
    return estimates


def _likely(estimates: Mapping[int, int], tried: int, ratio: float) -> int | None:
    """Return the fastest point whose peak is likely to fit, among those with less memory.

    If there is none, the result is the point of the least estimate, or None if that is clearly
    above the limit.

    Args:
        estimates: estimated peaks, by points.
        tried: the point whose peak did not fit.
        ratio: the limit divided by that peak. Other estimates are scaled by the same error.
    """
    most = estimates.get(tried, max(estimates.values())) * ratio
    slower = [point for point in estimates if point < tried]
    fitting = [point for point in slower if estimates[point] <= most]
    if fitting:
        return max(fitting)
    least = min(slower, key=estimates.__getitem__, default=None)
    return None if least is None or estimates[least] > _RELATIVE_ERROR * most else least
