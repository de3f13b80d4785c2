"""Frontier tracking: the choice of the solver for a problem.

This file is the whole routing on one mesh; `tensoropt.search.limits` has the numbers that decide
it. Many devices are searched from mesh to mesh (`tensoropt.search.multilevel.coarse_to_fine`).
"""

from __future__ import annotations

from tensoropt.errors import OptionError
from tensoropt.problem.model import Problem
from tensoropt.search.branching.branch_and_bound import branch_and_bound
from tensoropt.search.branching.subproblem import Subproblem
from tensoropt.search.exact.ft_ldp import ft_ldp
from tensoropt.search.exact.simplify_first import simplified, simplify_first
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier, joined_frontier
from tensoropt.search.watch import interruptible, keep, was_interrupted

__all__ = ["find", "frontier_tracking"]


@interruptible
def find(problem: Problem, epsilon: float, limits: SearchLimits) -> Outcome:
    """Return the frontier of a problem, from the first solver that the problem is not too large
    for.

    1. FT-LDP alone, where bounds do not hold, or would cost more than they save. Its result stands
       if it needed no heuristic.
    2. Without an epsilon, an exact search: eliminations, then bounds, if cells and points are few.
    3. If cells are few, a short branch and bound of the graph that eliminations leave; then,
       without an epsilon, a longer exact search, unless the first one's additions say that it
       would not end (`SearchLimits.longer_additions`).
    4. Branch and bound of the whole problem: its nodes are closer to single choices than those that
       eliminations leave, so divisions narrow more. Without an epsilon it goes on to
       `SearchLimits.closing_gap`, as far as that is quick.
    """
    known: Frontier | None = None
    if not limits.can_bound(problem):
        outcome = ft_ldp(problem, limits)
        if problem.has_negative or was_interrupted() or outcome.found.exact:
            return outcome
        known = outcome.found
        keep(known)
    gap = epsilon or limits.gap(problem)
    quick = limits.exact
    simple = simplified(problem, quick)
    may_end = epsilon == 0
    if epsilon == 0 and simple is not None:
        outcome = simplify_first(problem, 0.0, quick, simple)
        if was_interrupted() or not outcome.is_too_large:
            return outcome
        may_end = outcome.additions <= limits.longer_additions * len(simple.nodes)
        if outcome.frontier is not None:
            known = _with(known, outcome).found
    if known is not None:
        keep(known)
    if simple is not None:
        left = Subproblem(simple.flat(), is_simple=True)
        outcome = branch_and_bound(problem, gap, limits.short_branching, left, known)
        known = _with(known, outcome).found
        if was_interrupted() or known.is_within(gap):
            return Outcome(known)
        keep(known)
        if may_end:
            longer = limits.longer_exact
            outcome = simplify_first(problem, 0.0, longer, simple.copy(longer))
            if was_interrupted() or not outcome.is_too_large:
                return outcome
    whole = Subproblem(FlatGraph.of(problem))
    return branch_and_bound(problem, gap, limits, whole, known, closes=epsilon == 0)


def _with(early: Frontier | None, outcome: Outcome) -> Outcome:
    """Join an earlier solver's frontier with a later solver's outcome."""
    return outcome if early is None else Outcome(joined_frontier(outcome.found, early))


def frontier_tracking(
    problem: Problem,
    *,
    epsilon: float = 0.0,
    bounds: bool = True,
    limits: SearchLimits = DEFAULT_LIMITS,
) -> Frontier:
    """Find the cost frontier of a problem.

    The result is exact unless a heuristic elimination was needed, the problem was too large, or a
    watch ended the search; then its proven gap says within which share it is exact. It is the same
    on every machine, unless a time limit ended it.

    Args:
        problem: nodes, edges and their costs.
        epsilon: how far from exact the frontier may be: for every strategy it has a point of at
            most 1 + ``epsilon`` times its memory and its time. The search ends as soon as that is
            proven.
        bounds: False for the eliminations and the dynamic program of FT-LDP alone, whatever
            epsilon.
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
        return find(problem, epsilon, limits).found
    return ft_ldp(problem, limits).found
