"""FT-LDP, Algorithm 2 of the paper: the cost frontier of a computation graph."""

from __future__ import annotations

from tensoropt.errors import OptionError, SearchSizeError
from tensoropt.problem.model import Problem
from tensoropt.problem.parallel_edges import merge_parallel_edges
from tensoropt.search.exact.bounded import bounded_frontier, can_bound
from tensoropt.search.exact.ft_ldp import ft_ldp
from tensoropt.search.exact.simplified import simplified_frontier
from tensoropt.search.limits import SearchLimits
from tensoropt.search.pareto.frontier import Frontier, joined_frontier
from tensoropt.search.supported.first_look import first_look
from tensoropt.search.supported.near_frontier import near_frontier
from tensoropt.search.watch import best_known, keep, solving, was_interrupted

__all__ = ["frontier_tracking"]

# Where too much is left for an exact search, the frontier is as near as this, if it can be.
_NEAR = 0.01


def frontier_tracking(
    problem: Problem,
    *,
    max_states: int = 512,
    epsilon: float = 0.0,
    bounds: bool = True,
) -> Frontier:
    """Find the cost frontier by eliminations and linear dynamic programming (FT-LDP).

    First, configurations are left out that are proven to be on no frontier (`bounded_frontier`),
    where the problem is large. Then the graph is simplified to a chain (``linearise``), which is
    solved (``linear_dp``), and the points found are unrolled to strategies. Components that are not
    connected are solved one by one and multiplied. Where bounds would leave too much for that,
    strategies near the frontier's hull are found instead (`near_frontier`), and first of all where
    an epsilon is given: they are fewer, and often near enough. The result is the same on every
    machine, and exact unless a heuristic elimination was needed, or too much was left; then it
    says within what it is exact.

    Args:
        problem: nodes, edges and their costs.
        max_states: branch elimination may not make a node of more states than this; where no
            exact elimination is left, a heuristic one follows. Larger is more often exact, and
            slower. Among configurations that bounds have left it is 40 times as many.
        epsilon: how far from exact the frontier may be: for every strategy it has a point of at
            most 1 + ``epsilon`` times its memory and its time. The search ends as soon as that is
            proven.
        bounds: False for the eliminations and the dynamic program alone.

    Returns:
        The frontier, with counts of the eliminations.

    Raises:
        OptionError: if an option is none of the above.
        SearchSizeError: if a search without bounds would need more memory than a machine has.
    """
    if max_states < 1:
        raise OptionError(f"max_states is at least 1. Got {max_states}.")
    if not epsilon >= 0:
        raise OptionError(f"epsilon is at least 0. Got {epsilon}.")
    if bounds and can_bound(problem):
        return _with_bounds(merge_parallel_edges(problem), max_states, epsilon)
    outcome = ft_ldp(problem, None, 0.0, SearchLimits(branch_states=max_states))
    if outcome.is_too_large:
        raise SearchSizeError(
            "a table of a search without bounds has more points than a machine can hold; search "
            "with bounds, which leave most configurations out, or with an epsilon."
        )
    return outcome.found


def _with_bounds(problem: Problem, max_states: int, epsilon: float) -> Frontier:
    limits = SearchLimits(branch_states=max_states)
    look = first_look(problem)
    too_much = look is not None and look.leaves_too_much
    near: Frontier | None = None
    if too_much or epsilon > 0:
        known = None if look is None else look.known
        near = near_frontier(problem, known, epsilon or _NEAR, look)
        is_near = near.within is not None and near.within <= epsilon
        if too_much or was_interrupted() or is_near:
            return near
    with solving():
        if near is not None:
            keep(near)
        try:
            found = simplified_frontier(problem, max_states, epsilon)
            if found is None:
                found = bounded_frontier(
                    problem,
                    lambda part, context: ft_ldp(part, None, 0.0, limits, context=context),
                    epsilon,
                )
        except KeyboardInterrupt:
            found = best_known()
            if found is None:
                raise
        except SearchSizeError:  # strategies near the hull need no tables of points
            return near_frontier(problem, None, _NEAR, look) if near is None else near
    return found if near is None or found.exact else joined_frontier(found, near)
