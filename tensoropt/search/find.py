"""Frontier tracking: which solver searches a problem, and what is returned.

This file is the whole routing; `tensoropt.search.limits` has the numbers that decide it.
"""

from __future__ import annotations

from tensoropt.errors import OptionError
from tensoropt.problem.model import Problem
from tensoropt.problem.parallel_edges import merge_parallel_edges
from tensoropt.search.exact.bound_and_fix import bound_and_fix
from tensoropt.search.exact.ft_ldp import ft_ldp
from tensoropt.search.exact.simplify_first import simplify_first
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.supported.first_look import first_look
from tensoropt.search.supported.supported_frontier import supported_frontier
from tensoropt.search.watch import interruptible, keep, was_interrupted

__all__ = ["find", "frontier_tracking"]


@interruptible
def find(
    problem: Problem, incumbent: Frontier | None, epsilon: float, limits: SearchLimits
) -> Outcome:
    """The frontier of a problem, by the first solver that it is not too large for; see `Solver`.

    FT-LDP alone where bounds would cost more than they save, or do not hold. Strategies near the
    convex hull first where an epsilon is given: they are fewer, and often near enough; and alone
    where bounds would leave too much for an exact search. Else eliminations and then bounds, or
    bounds and then eliminations, whichever the problem is small enough for.
    """
    if not limits.can_bound(problem):
        return ft_ldp(problem, incumbent, epsilon, limits)
    problem = merge_parallel_edges(problem)
    look = first_look(problem, limits)
    is_beyond_exact = look is not None and look.leaves_too_much
    if is_beyond_exact or epsilon > 0:
        known = incumbent if look is None or incumbent is not None else look.known
        near = supported_frontier(problem, known, epsilon or limits.approximate_gap, limits, look)
        incumbent = near.frontier
        if is_beyond_exact or was_interrupted() or near.found.is_within(epsilon):
            return near
    if incumbent is not None:
        keep(incumbent)
    for solver in (simplify_first, bound_and_fix):
        outcome = solver(problem, incumbent, epsilon, limits)
        if not outcome.is_too_large:
            return outcome.joined_with(incumbent)
    if incumbent is not None:
        return Outcome.of(incumbent)
    return supported_frontier(problem, None, limits.approximate_gap, limits, look)


def frontier_tracking(
    problem: Problem,
    *,
    epsilon: float = 0.0,
    bounds: bool = True,
    limits: SearchLimits = DEFAULT_LIMITS,
) -> Frontier:
    """Find the cost frontier of a problem.

    The result is the same on every machine, and exact unless a heuristic elimination was needed or
    too much was left; then its proven gap says within what it is exact.

    Args:
        problem: nodes, edges and their costs.
        epsilon: how far from exact the frontier may be: for every strategy it has a point of at
            most 1 + ``epsilon`` times its memory and its time. The search ends as soon as that is
            proven.
        bounds: False for the eliminations and the dynamic program of FT-LDP alone.
        limits: of every solver.

    Returns:
        The frontier, with counts of the eliminations.

    Raises:
        OptionError: if epsilon is negative.
        SearchSizeError: if a search without bounds would need more memory than a machine has.
    """
    if not epsilon >= 0:
        raise OptionError(f"epsilon is at least 0. Got {epsilon}.")
    if bounds:
        return find(problem, None, epsilon, limits).found
    return ft_ldp(problem, None, 0.0, limits).found
