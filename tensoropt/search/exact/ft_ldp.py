"""FT-LDP, Algorithm 2 of the paper: eliminations to a chain, then dynamic programming over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tensoropt.errors import SearchSizeError
from tensoropt.problem.model import Problem
from tensoropt.search.exact.branch_elimination import eliminate_branch
from tensoropt.search.exact.heuristic_elimination import fold
from tensoropt.search.exact.linearise import linearise
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier, joined_frontier
from tensoropt.search.pareto.table import Table
from tensoropt.search.watch import look_at_clock

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


def linear_dp(graph: SearchGraph, chain: Sequence[int]) -> None:
    """Compute the frontier of a chain (paper, Algorithm 3), exactly, from both ends.

    State: the slot at which the tensor leaves node i; its frontier covers nodes 1 to i with the
    edges between them. Recurrence: through the edge to each slot where node i+1 takes the tensor,
    CF'(t) unites CF(s) ⊗ F(e, s, t) over s; then times each of the node's states, united by the
    slot where that state's output leaves: CF(s') unites CF'(t(k)) ⊗ F(o, k) over the k of s'. That
    is branch elimination of a node with one neighbour. With K states, L slots and frontiers of P
    points it takes O(P·L² + P·K log(P·K)) a node, where pairs of configurations would take O(P·K²).
    The end with fewer products goes first, so that a large table at one end is multiplied with few
    points, not with a large edge.

    Args:
        graph: its component, the chain, becomes part of the constant.
        chain: the nodes in order.
    """
    first, last = 0, len(chain) - 1
    while first < last and not graph.is_pruned_out:
        look_at_clock()
        if graph.prune_again() and graph.is_pruned_out:
            return
        forward, backward = (chain[first], chain[first + 1]), (chain[last], chain[last - 1])
        if _products(graph, *forward) <= _products(graph, *backward):
            eliminate_branch(graph, *forward)
            first += 1
        else:
            eliminate_branch(graph, *backward)
            last -= 1
    if not graph.is_pruned_out:
        node = chain[first]
        whole = graph.nodes[node].group(np.zeros(graph.states(node), dtype=np.int64), 1)
        graph.settle(whole, graph.least[node])
        graph.remove(node)


def _products(graph: SearchGraph, node: int, into: int) -> float:
    """Estimate the products to carry a node through its edge into the next.

    For the last two nodes, return the points that are carried.
    """
    own, edge, there = graph.nodes[node], graph.stored(node, into).table, graph.nodes[into]
    if graph.degree(into) == 1:
        return own.memory.size
    arrived = edge.rows * _points(own) * _points(edge)
    return arrived + there.memory.size * (_points(own) + _points(edge))


def _points(table: Table) -> float:
    return table.memory.size / max(table.rows, 1)
