"""The peaks of memory along a frontier. Its points state the sum of kept tensors, not the peak.

Estimating all points would take longer than their search. Along a frontier the ratio of peak to sum
changes in a few steps, so some points are estimated, most of them where it changes, and the ratio
is interpolated between them. On six graphs of the zoo, 12 estimates left errors of 0 to 0.6 % on
average, and of 28 % at most (docs/memory.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.plan.dry_run_bounds import SUM
from tensoropt.plan.point_peak import PointPeak
from tensoropt.planner.prices.estimates import can_be_estimated, estimated_bytes
from tensoropt.planner.prices.peak import PredictedPeak, evenly, predicted_peak
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.planner.prices.sampled_points import sampled
from tensoropt.planner.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["OPERATORS", "FrontierPeaks", "all_peaks"]

OPERATORS = 4_000
"""The approximate number of operators in all estimates of a request; each takes 0.1 ms. This limit
does not depend on a clock, so the same request has the same plan on any machine."""
_DRY_RUNS, _DRY_RUN_OPERATORS = 3, 6_000
"""The most dry runs of a step that cannot be estimated, and the approximate number of operators in
all of them; each takes some milliseconds."""


class FrontierPeaks:
    """The peaks along a frontier. Some points are estimated, the others interpolated.

    An estimate follows the script's operators (`tensoropt.cost.peak.estimated_peak`) and takes a
    tenth of a dry run's time. A step that differentiates gradients cannot be estimated. Then three
    points have dry runs, unless dry runs would take long or fail, or the request saves dry runs and
    all points are far below the limit.

    Args:
        request: the step.
        problem: the searched problem.
        frontier: its frontier.
        shared: a table of estimates in bytes, by the bytes of a strategy, which several frontiers
            of one problem read and fill; a table of its own by default.

    Attributes:
        estimates: the estimates of this frontier in bytes, by number of the point.
    """

    def __init__(
        self,
        request: Request,
        problem: GraphProblem,
        frontier: Frontier,
        shared: dict[bytes, int] | None = None,
    ) -> None:
        self._request, self._problem, self._frontier = request, problem, frontier
        cost = request.cost_model(problem.mesh.size, problem.mesh)
        self._steps = ReshardSteps(problem.mesh, cost.collective_nanoseconds)
        self._shared = {} if shared is None else shared
        self.estimates: dict[int, int] = {}

    @cached_property
    def _dry_runs(self) -> dict[int, int]:
        """The peaks of a step that cannot be estimated, by number of the point."""
        request, problem, frontier = self._request, self._problem, self._frontier
        limit = request.limit_bytes(problem.mesh.size)
        if request.saves_dry_runs and SUM * int(frontier.memory[-1]) <= limit:
            return {}
        emitted = len(request.graph) * request.microbatches
        most = min(_DRY_RUNS, _DRY_RUN_OPERATORS // max(emitted, 1))
        peaks = {}
        for number in evenly(len(frontier), most) if most > 1 else ():
            peak = predicted_peak(request, problem, frontier.strategies[number].tolist())
            if not peak.from_dry_run:
                break
            peaks[number] = peak.bytes
        return peaks

    def estimate(self, operators: int) -> None:
        """Estimate points, at least the fastest one, until estimates have this many operators."""
        if not can_be_estimated(self._request):
            return
        most = max(1, operators // max(len(self._request.graph), 1))
        self.estimates = sampled(self._frontier.memory, self._estimate, most, self.estimates)

    def of_all_points(
        self, known: Mapping[int, PredictedPeak] = MappingProxyType({})
    ) -> list[PointPeak | None]:
        """Return the peak of each point; None for each if none is known.

        Args:
            known: known peaks, by number of the point.
        """
        dry_runs = {number: peak.bytes for number, peak in known.items() if peak.from_dry_run}
        if self.estimates:
            for number in dry_runs.keys() - self.estimates:
                self.estimates[number] = self._estimate(number)
        else:
            dry_runs = self._dry_runs | dry_runs
        return all_peaks(self._frontier.memory, self.estimates, dry_runs)

    def _estimate(self, number: int) -> int:
        """Return the estimated bytes of a point."""
        strategy = self._frontier.strategies[number]
        key = strategy.tobytes()
        if key not in self._shared:
            planned = self._request.strategy(self._problem, strategy.tolist())
            self._shared[key] = estimated_bytes(self._request, planned, self._steps)
        return self._shared[key]


def all_peaks(
    sums: Int64Array, estimates: Mapping[int, int], dry_runs: Mapping[int, int]
) -> list[PointPeak | None]:
    """Return the peak of each point, from those of some.

    Args:
        sums: int64[P], the bytes that the search adds up, ascending.
        estimates: estimated peaks in bytes, by number of the point. They are corrected by the ratio
            of dry run to estimate at the points that have both.
        dry_runs: peaks of dry runs in bytes, by number of the point.

    Returns:
        A peak for each point; None for each if none is known.
    """
    known = estimates or dry_runs
    if not known:
        return [None] * len(sums)
    above = np.maximum(sums, 1).astype(np.float64)
    peaks = above * _between(above, {number: known[number] / above[number] for number in known})
    both = estimates.keys() & dry_runs
    if both:
        peaks *= _between(above, {number: dry_runs[number] / estimates[number] for number in both})
    found: list[PointPeak | None] = []
    for number, peak in enumerate(peaks.round().astype(np.int64).tolist()):
        if number in dry_runs:
            found.append(PointPeak(dry_runs[number], "dry run"))
        else:
            found.append(PointPeak(peak, "estimate" if number in estimates else "interpolation"))
    return found


def _between(sums: Float64Array, values: Mapping[int, float]) -> Float64Array:
    """Return float64[P] with the given values of some points, interpolated between their sums."""
    numbers = sorted(values)
    given = np.array([values[number] for number in numbers])
    between: Float64Array = np.interp(sums, sums[numbers], given)
    return between
