"""An approximate frontier with a proven gap, from the strategies of least weighted cost.

A problem with many trade-offs may have an exact frontier of tens of thousands of points. A few of
them give nearly the same choice: those on its lower hull, each the strategy of least cost for some
weights of time and memory (supported points), and strategies between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensoropt.problem.model import Problem
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, warm_bounds
from tensoropt.search.bounds.passes import sweep_additions
from tensoropt.search.bounds.weights import first_weights, widest_gaps
from tensoropt.search.branching.known_points import Points
from tensoropt.search.effort import FEWEST_WEIGHTS, FIRST_LOOK_SWEEPS
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods
from tensoropt.search.scalar.series_parallel import weighted_elimination
from tensoropt.search.supported.close_gaps import close_gaps
from tensoropt.search.supported.joining import joined, joined_with_between, proven
from tensoropt.search.supported.near_hull import near_hull
from tensoropt.search.watch import interruptible, keep, tell

__all__ = ["FirstLook", "first_look", "supported_frontier"]


@dataclass(frozen=True, slots=True, eq=False)
class FirstLook:
    """Bounds of a problem for one pair of weights, and a strategy, for the solvers that follow.

    Attributes:
        table: the problem in flat arrays.
        bounds: for the pair of weights.
        known: a strategy of low cost for them.
    """

    table: WeightedBounds
    bounds: Bounds
    known: Frontier


def first_look(problem: Problem) -> FirstLook:
    """Compute bounds and a strategy for one pair of weights, the mean worth of a byte."""
    table = WeightedBounds(problem)
    bounds = table.bounds(1.0, problem.byte_worth, FIRST_LOOK_SWEEPS)
    known = joined(problem, None, Neighbourhoods(table).near_bounds(bounds)[None])
    return FirstLook(table, bounds, known)


@interruptible
def supported_frontier(
    problem: Problem,
    incumbent: Frontier | None,
    epsilon: float,
    limits: SearchLimits,
    look: FirstLook | None = None,
    learn: Callable[[Sequence[Bounds], Points], None] | None = None,
) -> Outcome:
    """Return the frontier of a problem within a gap that it states; see `Solver`.

    The search has rounds. Bounds for several weights say which configurations are promising.
    Supported points are found for these weights, in large neighbourhoods of known strategies
    (`near_hull`). Between neighbours on the hull, the configurations of one are exchanged for the
    other's node by node. Bounds then prove a gap, and the next round's weights are those of the
    widest gaps. Rounds end when the gap is at most ``epsilon``, or after the last one. A
    series-parallel graph has one round: if its gap is wider, the least of all strategies is found
    for the weights of the widest gaps (`close_gaps`), and gaps are filled.

    Args:
        problem: with costs that are not negative.
        incumbent: strategies to begin with.
        epsilon: more than 0.
        limits: of every step.
        look: a first look at the problem, if there was one.
        learn: called with all bounds, and with the strategies found.
    """
    if look is not None and incumbent is None:
        incumbent = look.known
    if incumbent is not None:
        keep(incumbent, last_resort=incumbent.within is None)
    bounds: Sequence[Bounds] = () if look is None else (look.bounds,)
    table = WeightedBounds(problem) if look is None else look.table
    has_eliminations = weighted_elimination(table.graph, limits.closing_additions) is not None
    rounds = limits.supported_rounds[: 1 if has_eliminations else None]
    for number, size in enumerate(rounds):
        tell("bounds", number, len(rounds))
        incumbent, bounds = _round(problem, table, incumbent, bounds, size, epsilon, limits)
        keep(incumbent)
        if incumbent.is_within(epsilon):
            break
    assert incumbent is not None
    if has_eliminations and not incumbent.is_within(epsilon):
        incumbent, bounds = close_gaps(problem, table, incumbent, bounds, epsilon, limits)
    if learn is not None:
        learn(bounds, Points(incumbent.memory, incumbent.time, incumbent.strategies))
    return Outcome(incumbent)


def _round(
    problem: Problem,
    table: WeightedBounds,
    incumbent: Frontier | None,
    earlier: Sequence[Bounds],
    size: tuple[int, int],
    epsilon: float,
    limits: SearchLimits,
) -> tuple[Frontier, Sequence[Bounds]]:
    """Return the incumbent after a round, and all bounds so far, which prove its gap."""
    cells = max(1, sum(edge.time.size for edge in problem.edges))
    additions = limits.supported_round_additions
    sweeps = int(max(1, min(size[1], additions / sweep_additions(1, cells, FEWEST_WEIGHTS))))
    most = additions / sweep_additions(sweeps, cells)
    count = int(max(FEWEST_WEIGHTS, min(size[0], most)))
    if incumbent is None or len(earlier) < 2:  # of a first look, or none
        weights = first_weights(problem, incumbent, count)
    else:
        weights = widest_gaps(incumbent, earlier, count, epsilon, halved=True)
        if not weights:
            return incumbent, earlier
    bounds = warm_bounds(table, weights, sweeps, earlier)
    frontier = near_hull(problem, table, incumbent, bounds, epsilon)
    bounds = [*earlier, *bounds]
    return proven(joined_with_between(problem, frontier), bounds, table.start), bounds
