"""Algorithm 3 of the paper: the frontier of a linear graph by dynamic programming over slots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.search.exact.branch_elimination import eliminate_branch
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.pareto.table import Table
from tensoropt.search.watch import look_at_clock

__all__ = ["linear_dp"]


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
