"""The eliminations and the dynamic program of Algorithm 2, without any bounds before."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tensoropt.problem.model import Problem
from tensoropt.search.bounds.pruning_context import Known, NothingBetterError
from tensoropt.search.exact.heuristic_elimination import Heuristic, fold
from tensoropt.search.exact.linear_dp import linear_dp
from tensoropt.search.exact.linearise import linearise
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["eliminated", "frontier_of", "solve_graph"]

# Where known strategies keep tables small, branch elimination may make so many times more states.
_MORE_STATES = 40


def eliminated(
    problem: Problem, chooser: Heuristic, max_states: int, known: Known | None = None
) -> Frontier:
    """Eliminations until the graph is a chain, then dynamic programming.

    Raises:
        NothingBetterError: if strategies are known, and none is better.
    """
    graph = SearchGraph(problem, known)
    try:
        solve_graph(graph, chooser, max_states if known is None else _MORE_STATES * max_states)
    except NothingBetterError:
        raise NothingBetterError(proven=graph.counts["heuristic"] == 0) from None
    return frontier_of(graph, len(problem.nodes))


def frontier_of(graph: SearchGraph, nodes: int) -> Frontier:
    """The frontier of a graph that nothing is left of, of a problem with so many nodes."""
    return Frontier(
        graph.constant.memory,
        graph.constant.time,
        graph.derivations.unroll(graph.constant.identity, nodes),
        graph.counts,
        exact=graph.counts["heuristic"] == 0,
    )


def solve_graph(graph: SearchGraph, chooser: Heuristic, max_states: int) -> None:
    """Eliminate all nodes of a graph; what is left is its constant.

    Raises:
        NothingBetterError: if strategies are known, and none is better.
    """
    for node in [node for node, table in graph.nodes.items() if table.rows == 1]:
        fold(graph, node)
    while graph.nodes:
        chain = linearise(graph, chooser, max_states)
        edges = [graph.edge(*ends) for ends in pairwise(chain)]
        inside = [graph.inside[node] for node in chain]
        found = linear_dp(
            [graph.nodes[node] for node in chain], edges, graph.derivations, graph.hopeful, inside
        )
        graph.settle(found, np.sum([*inside, *(edge.inside for edge in edges)], axis=0))
        for node in chain:
            graph.remove(node)
