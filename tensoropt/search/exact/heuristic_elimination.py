"""Heuristic elimination (paper, equation 7), and its exact case: a node with a single state."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import Float64Array
from tensoropt.search.exact.edge_table import EdgeTable
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.pareto.table import multiply

__all__ = ["eliminate_by_choice", "fold"]


def _least_costs(edge: EdgeTable) -> tuple[Float64Array, Float64Array]:
    """Return the least memory and the least time of an edge at each near slot; infinity for a slot
    without points."""
    slots = edge.table.row_of_points // edge.far_count
    least = np.full((2, edge.near_count), np.inf)
    np.minimum.at(least[0], slots, edge.table.memory)
    np.minimum.at(least[1], slots, edge.table.time)
    return least[0], least[1]


def _fix(graph: SearchGraph, node: int, state: int) -> None:
    """Remove ``node`` with a chosen ``state``: the costs of its edges move to its neighbours."""
    for neighbour in graph.neighbours(node):
        edge = graph.edge(node, neighbour)
        graph.disconnect(node, neighbour)
        others = np.arange(graph.states(neighbour))
        rows = edge.near_slots[state] * edge.far_count + edge.far_slots
        message = edge.near_messages[edge.near_slots[state]]
        graph.least[neighbour] = graph.least[neighbour] + message
        graph.least[node] = graph.least[node] - message
        graph.nodes[neighbour] = graph.undominated(
            multiply(
                graph.nodes[neighbour],
                edge.table,
                (others, rows, others),
                others.size,
                graph.pointers,
            ),
            graph.messages(neighbour) - graph.least[neighbour],
        )
        graph.tidy(neighbour)
    graph.settle(graph.nodes[node].take(np.array([state])), graph.least[node])
    graph.remove(node)


def fold(graph: SearchGraph, node: int) -> None:
    """Remove a node with one state; the frontier stays exact."""
    _fix(graph, node, 0)
    graph.counts["fold"] += 1


def eliminate_by_choice(graph: SearchGraph, node: int) -> None:
    """Decide a state for ``node`` and remove it: F(o_j, p) = F(o_j, p) ⊗ F(e_ij, k, p).

    The state with the least memory, then the least time, is chosen: its own costs and the least of
    each of its edges. This is not exact: strategies with another state are lost.
    """
    table = graph.nodes[node]
    memory, time = table.memory.astype(np.float64), table.time.astype(np.float64)
    for neighbour in graph.neighbours(node):
        edge = graph.edge(node, neighbour)
        slots = edge.near_slots[table.row_of_points]
        least_memory, least_time = _least_costs(edge)
        memory += least_memory[slots]
        time += least_time[slots]
    state = int(table.row_of_points[np.lexsort((time, memory))[0]])
    _fix(graph, node, state)
    graph.counts["heuristic"] += 1
