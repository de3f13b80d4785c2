"""FT-Elimination: the frontier by eliminations down to two nodes (TensorOpt, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from tensoropt.problem.model import Problem
from tensoropt.search.exact.branch_elimination import combinations, eliminate_branch
from tensoropt.search.exact.ft_ldp import frontier_of
from tensoropt.search.exact.heuristic_elimination import eliminate_by_choice, fold
from tensoropt.search.exact.node_elimination import eliminate_node
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.watch import look_at_clock

__all__ = ["solve"]


def solve(problem: Problem, limits: SearchLimits = DEFAULT_LIMITS) -> Frontier:
    """The frontier by the paper's four eliminations alone, without linear dynamic programming.

    "One can apply the aforementioned 4 types of eliminations to simplify the computation graph G
    into a graph that contains only two nodes and then find the cost frontier for the simplified
    graph by brute-force search." Nothing is marked: every node may be eliminated. In the order of
    the graph, a node between two others becomes an edge and a leaf is merged into its neighbour;
    where there is neither, the branch with the fewest states is merged; where all have too many,
    a heuristic decides a node.

    Args:
        problem: with costs of any sign.
        limits: of states and points.

    Returns:
        The exact frontier, or one that is not if a heuristic elimination was needed.

    Raises:
        SearchSizeError: if a table has too many points.
    """
    graph = SearchGraph(problem, limits)
    for node in [node for node, table in graph.nodes.items() if table.rows == 1]:
        fold(graph, node)
    while graph.nodes:
        look_at_clock()
        if not _eliminate_simple(graph):
            _eliminate_other(graph, limits.branch_states)
    found = frontier_of(graph)
    exact = graph.counts["heuristic"] == 0
    return Frontier(
        found.memory, found.time, found.strategies, exact=exact, within=0.0 if exact else None
    )


def _eliminate_simple(graph: SearchGraph) -> bool:
    """Eliminate every node with one neighbour or two once, in the order of the graph; return
    whether there was one.

    The last two nodes of a part of the graph are tried in all pairs of their states.
    """
    before = len(graph.nodes)
    for node in sorted(graph.nodes):
        look_at_clock()
        near = graph.neighbours(node)
        if not near:
            whole = graph.nodes[node].group(np.zeros(graph.states(node), dtype=np.int64), 1)
            graph.settle(whole, graph.least[node])
            graph.remove(node)
        elif len(near) == 1:
            eliminate_branch(graph, node, near[0])
            graph.counts["branch"] += 1
        elif len(near) == 2:
            eliminate_node(graph, node)
    return len(graph.nodes) < before


def _eliminate_other(graph: SearchGraph, most_states: int) -> None:
    """Merge the branch with the fewest states; decide the node with the most neighbours if every
    branch would have too many."""
    states, branch = min((*_branches(graph), (most_states + 1, (-1, -1))))
    if states <= most_states:
        eliminate_branch(graph, *branch)
        graph.counts["branch"] += 1
        return
    eliminate_by_choice(graph, min(graph.nodes, key=lambda node: (-graph.degree(node), node)))


def _branches(graph: SearchGraph) -> Iterator[tuple[int, tuple[int, int]]]:
    """Each node with a neighbour to merge it into, and the number of states of the merger."""
    for node in graph.nodes:
        for one, other in permutations((node, *graph.neighbours(node)), 2):
            if one == node:
                states = combinations(graph, one, other) * combinations(graph, other, one)
                yield states, (one, other)
