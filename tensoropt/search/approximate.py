"""An approximate frontier with a proven gap: supported points first, then branch and bound."""

from __future__ import annotations

from tensoropt.problem.model import Problem
from tensoropt.search.branching.branch_and_bound import branch_and_bound
from tensoropt.search.branching.part import Part
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier, joined_frontier
from tensoropt.search.supported.supported_frontier import first_look, supported_frontier
from tensoropt.search.watch import keep, was_interrupted

__all__ = ["approximate"]


def approximate(
    problem: Problem,
    incumbent: Frontier | None,
    epsilon: float,
    limits: SearchLimits,
    *,
    rounds: float,
    enough: float,
    closes: bool,
) -> Outcome:
    """The frontier of a problem within a gap that it states.

    Args:
        problem: with costs that are not negative.
        incumbent: strategies to begin with.
        epsilon: the gap that branch and bound looks for, more than 0.
        limits: of both.
        rounds: the gap at which rounds of bounds end.
        enough: the gap after them at which no branch and bound follows.
        closes: whether branch and bound goes on to `SearchLimits.closing_gap`, as far as it is
            quick.
    """
    look = first_look(problem)
    whole = Part(look.table.graph, table=look.table)
    outcome = supported_frontier(problem, incumbent, rounds, limits, look, whole.learn)
    known = outcome.found
    if was_interrupted() or known.is_within(enough):
        return outcome
    keep(known)
    outcome = branch_and_bound(problem, epsilon, limits, whole, known, closes=closes)
    return Outcome(joined_frontier(outcome.found, known))
