"""The peaks of memory along a frontier. Its points state the sum of kept tensors, not the peak."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tensoropt.plan.dry_run_bounds import SUM
from tensoropt.planner.prices.estimates import can_be_estimated, estimated_bytes
from tensoropt.planner.prices.peak import PredictedPeak, evenly, predicted_peak
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.planner.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["frontier_peaks"]

_POINTS = (23, 12, 3, 2)
"""The numbers of points that may have a peak. Printed tables have 23 rows; each smaller number
selects points that are among these rows."""
_OPERATORS = 4_000
"""The approximate number of operators in all estimates of a frontier; each takes 0.1 ms. This limit
does not depend on a clock, so the same request has the same plan on any machine."""
_OPERATORS_AT_A_START = 800
"""The same limit at the start of a job, which prints no table of the frontier."""
_DRY_RUNS, _DRY_RUN_OPERATORS = 3, 6_000
"""The most dry runs of a step that cannot be estimated, and the approximate number of operators in
all of them; each takes some milliseconds."""


def frontier_peaks(
    request: Request,
    problem: GraphProblem,
    frontier: Frontier,
    known: Mapping[int, PredictedPeak] = MappingProxyType({}),
) -> tuple[tuple[int, int], ...]:
    """Return the memory, as the search adds it up, and the peak of evenly spread points.

    An estimate follows the script's operators (`tensoropt.cost.peak.estimated_peak`) and takes a
    tenth of a dry run's time. A step that differentiates gradients cannot be estimated. Then three
    points have dry runs, unless dry runs would take long or fail, or the request saves dry runs and
    all points are far below the limit.

    Args:
        request: the step.
        problem: the searched problem.
        frontier: its frontier.
        known: known peaks, by the number of the point.
    """
    if not can_be_estimated(request):
        return _from_dry_runs(request, problem, frontier, known)
    operators = _OPERATORS_AT_A_START if request.saves_dry_runs else _OPERATORS
    affordable = operators // max(len(request.graph), 1)
    most = next((count for count in _POINTS if count <= affordable), _POINTS[-1])
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    steps = ReshardSteps(problem.mesh, cost.collective_nanoseconds)
    peaks = []
    for number in evenly(len(frontier), most):
        strategy = request.strategy(problem, frontier.strategies[number].tolist())
        peak = estimated_bytes(request, strategy, steps)
        peaks.append((int(frontier.memory[number]), peak))
    return tuple(peaks)


def _from_dry_runs(
    request: Request,
    problem: GraphProblem,
    frontier: Frontier,
    known: Mapping[int, PredictedPeak],
) -> tuple[tuple[int, int], ...]:
    """Return the result of `frontier_peaks` for a step that cannot be estimated."""
    limit = request.limit_bytes(problem.mesh.size)
    is_known_to_fit = request.saves_dry_runs and SUM * int(frontier.memory[-1]) <= limit
    emitted = len(request.graph) * request.microbatches
    most = min(_DRY_RUNS, _DRY_RUN_OPERATORS // max(emitted, 1))
    peaks = []
    for number in evenly(len(frontier), most) if most > 1 else ():
        peak = known.get(number)
        if peak is None and is_known_to_fit:
            continue
        if peak is None:
            peak = predicted_peak(request, problem, frontier.strategies[number].tolist())
        if not peak.from_dry_run:
            break
        peaks.append((int(frontier.memory[number]), peak.bytes))
    return tuple(peaks)
