"""FT-LDP, Algorithm 2 of the paper: eliminations to a chain, then linear dynamic programming."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tensoropt.errors import SearchSizeError
from tensoropt.problem.model import Problem
from tensoropt.search.exact.heuristic_elimination import fold
from tensoropt.search.exact.linear_dp import linear_dp
from tensoropt.search.exact.linearise import linearise
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier, joined_frontier

__all__ = ["eliminate_all", "frontier_of", "ft_ldp", "or_too_large", "solve_graph"]


def ft_ldp(problem: Problem, limits: SearchLimits) -> Outcome:
    """Return the frontier by eliminations and dynamic programming alone.

    Args:
        problem: with costs of any sign.
        limits: of states and points.

    Returns:
        The exact frontier, or one without a proven gap if a heuristic elimination was needed. Too
            large where a table has too many points.
    """
    states = limits.branch_states
    return or_too_large(lambda: solve_graph(SearchGraph(problem, limits), None, 0.0, states))


def or_too_large(search: Callable[[], Outcome]) -> Outcome:
    """Return the outcome of a search; too large if its tables exceed the limits."""
    try:
        return search()
    except SearchSizeError:
        return Outcome(None, is_too_large=True)


def solve_graph(
    graph: SearchGraph, incumbent: Frontier | None, epsilon: float, max_states: int
) -> Outcome:
    """Eliminate all nodes of a graph.

    Args:
        graph: with bounds and a search region, or without.
        incumbent: strategies that are joined with those found.
        epsilon: the share by which strategies in the graph's search region better the incumbent; 0
            without a region.
        max_states: the most states of a node that branch elimination makes.

    Returns:
        As `ft_ldp`; within a gap if ``epsilon`` is not 0. Without a frontier where nothing lies in
            the search region and there is no incumbent.

    Raises:
        SearchSizeError: if a table has too many points.
    """
    eliminate_all(graph, max_states)
    proven = graph.counts["heuristic"] == 0
    if graph.is_pruned_out:
        frontier = incumbent
    else:
        frontier = frontier_of(graph)
        if incumbent is not None:
            frontier = joined_frontier(incumbent, frontier)
    if frontier is None:
        return Outcome(None, is_too_large=not proven)
    within = epsilon if proven else None
    exact = proven and epsilon == 0
    return Outcome(replace(frontier, eliminations=graph.counts, exact=exact, within=within))


def frontier_of(graph: SearchGraph) -> Frontier:
    """Return the points of a graph without nodes, and their strategies."""
    points = graph.constant
    strategies = graph.pointers.unroll(points.identity, graph.size)
    return Frontier(points.memory, points.time, strategies)


def eliminate_all(graph: SearchGraph, max_states: int) -> None:
    """Eliminate all nodes, unless the graph is pruned out; the constant then has the result.

    Raises:
        SearchSizeError: if a table has too many points.
    """
    for node in [node for node, table in graph.nodes.items() if table.rows == 1]:
        if not graph.is_pruned_out:
            fold(graph, node)
    while graph.nodes and not graph.is_pruned_out:
        chain = linearise(graph, max_states)
        if not graph.is_pruned_out:
            linear_dp(graph, chain)
