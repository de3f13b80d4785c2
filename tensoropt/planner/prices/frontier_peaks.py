"""The peaks of memory along a frontier, whose points have what the search can add up."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tensoropt.plan.peak_margin import SUM
from tensoropt.planner.prices.estimates import can_be_estimated, estimated_bytes
from tensoropt.planner.prices.peak import PredictedPeak, evenly, predicted_peak
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.planner.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["frontier_peaks"]

_POINTS = (23, 12, 3, 2)
"""How many points may have a peak: of fewer, too, they are among the 23 rows of a table."""
_OPERATORS = 4_000
"""Operators followed in all of a frontier's estimates, roughly; each takes a tenth of a
millisecond. No clock is asked, so that the same request has the same plan on any machine."""
_OPERATORS_AT_A_START = 800
"""Likewise at the start of a job, which prints no table of the frontier."""
_DRY_RUNS, _DRY_RUN_OPERATORS = 3, 6_000
"""Where there is no estimate: how many at most, and operators emitted in all of them, roughly; each
takes some milliseconds."""


def frontier_peaks(
    request: Request,
    problem: GraphProblem,
    frontier: Frontier,
    known: Mapping[int, PredictedPeak] = MappingProxyType({}),
) -> tuple[tuple[int, int], ...]:
    """Memory, as the search adds it up, and peak of some points, spread evenly.

    Estimates follow the script's operators (`tensoropt.cost.peak.estimated_peak`) and take a tenth
    of a dry run's time. Steps that differentiate gradients have no estimates: three of their points
    have the peaks of dry runs, unless these would take long, fail, or the request saves dry runs
    and all points are far below the limit.

    Args:
        request: what was searched for.
        problem: that was searched.
        frontier: of the problem.
        known: peaks of some points, by number.
    """
    if not can_be_estimated(request):
        return _from_dry_runs(request, problem, frontier, known)
    operators = _OPERATORS_AT_A_START if request.saves_dry_runs else _OPERATORS
    affordable = operators // max(len(request.graph), 1)
    most = next((count for count in _POINTS if count <= affordable), _POINTS[-1])
    cost = request.cost_model(problem.mesh.size, problem.mesh)
    steps = ReshardSteps(problem.mesh, cost.collective_nanoseconds)
    found = []
    for number in evenly(len(frontier), most):
        strategy = request.strategy(problem, frontier.strategies[number].tolist())
        peak = estimated_bytes(request, strategy, steps)
        found.append((int(frontier.memory[number]), peak))
    return tuple(found)


def _from_dry_runs(
    request: Request,
    problem: GraphProblem,
    frontier: Frontier,
    known: Mapping[int, PredictedPeak],
) -> tuple[tuple[int, int], ...]:
    limit = request.limit_bytes(problem.mesh.size)
    is_known_to_fit = request.saves_dry_runs and SUM * int(frontier.memory[-1]) <= limit
    emitted = len(request.graph) * request.microbatches
    most = min(_DRY_RUNS, _DRY_RUN_OPERATORS // max(emitted, 1))
    found = []
    for number in evenly(len(frontier), most) if most > 1 else ():
        peak = known.get(number)
        if peak is None and is_known_to_fit:
            continue
        if peak is None:
            peak = predicted_peak(request, problem, frontier.strategies[number].tolist())
        if not peak.from_dry_run:
            break
        found.append((int(frontier.memory[number]), peak.bytes))
    return tuple(found)
