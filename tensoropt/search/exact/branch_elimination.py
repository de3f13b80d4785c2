"""Branch elimination (paper, equation 6): a node is merged into one of its neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensoropt.search.exact.search_graph import SearchGraph, joint_near_slots
from tensoropt.search.exact.through_edge import through_edge
from tensoropt.search.flat.joint_slots import joint_keys
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.table import Table, multiply

__all__ = ["combinations", "eliminate_branch"]


def combinations(graph: SearchGraph, node: int, but: int) -> int:
    """Return the number of combinations of slots that a node's states have on all edges but one.

    A node into which another was merged has one state for each pair of their states.
    """
    others = [far for far in graph.neighbours(node) if far != but]
    if len(others) < 2:
        return graph.end(node, others[0]).size if others else 1
    return joint_near_slots(graph, node, but)[1].size


def eliminate_branch(graph: SearchGraph, node: int, into: int) -> None:
    """Merge ``node`` into its neighbour ``into``, which takes over its other edges.

    F(o_h, (w, v)) unites F(o_h, p) ⊗ F(o_i, k) ⊗ F(e_ih, k, p) over the states k of the node whose
    slots on all its other edges are v, and the states p of the neighbour whose slots on all its
    other edges are w: the remaining graph depends on v and w alone, on every edge at once. A node
    without other edges has one v: its configuration is minimised out.
    """
    node_key, node_example = joint_near_slots(graph, node, into)
    into_key, into_example = joint_near_slots(graph, into, node)
    node_count, into_count = node_example.size, into_example.size
    node_messages = graph.messages(node, but=into)[node_example]
    into_messages = graph.messages(into, but=node)[into_example]
    stored = graph.stored(node, into)
    near, far = graph.end(node, into), graph.end(into, node)
    graph.disconnect(node, into)
    least = graph.least[node]
    total = least + graph.least[into]
    # The node's states by key and slot on the edge, carried through the edge key by key.
    pair, example = joint_keys([node_key, near.slots], node_key.size)
    states = np.arange(graph.states(into))
    keys = np.arange(node_count)
    triples = (
        np.add.outer(keys * far.size, far.slots).ravel(),
        np.tile(states, node_count),
        np.add.outer(keys * into_count, into_key).ravel(),
    )

    def compute(tables: list[Table], names: BackPointers) -> Table:
        own, between, there = tables
        arrived = through_edge(
            own.group(pair, example.size),
            node_key[example],
            near.slots[example],
            node_count,
            stored.with_table(between, flipped=node > into),
            names,
        )
        rest = node_messages[:, None] - far.messages - least
        arrived = graph.undominated(arrived, rest.reshape(arrived.rows, least.size))
        return multiply(arrived, there, triples, node_count * into_count, names)

    tables = [graph.nodes[node], stored.table, graph.nodes[into]]
    slots = [stored.near_slots, stored.far_slots, node_key, into_key]
    kind = f"branch {node > into}"
    merged = graph.made(kind, tables, slots, compute)
    rest = node_messages[:, None] + into_messages - total
    merged = graph.undominated(merged, rest.reshape(merged.rows, total.size))

    # State s of the merged node is (node key, neighbour key) = divmod(s, into_count).
    node_parent = np.repeat(node_example, into_count)
    into_parent = np.tile(into_example, node_count)
    moved = [(other, graph.edge(node, other)) for other in graph.neighbours(node)]
    graph.remove(node)
    graph.nodes[into], graph.least[into] = merged, total
    for other in graph.neighbours(into):
        graph.renumber(into, other, into_parent)
    for other, edge in moved:
        graph.connect(into, other, replace(edge, near_slots=edge.near_slots[node_parent]))
    graph.tidy(into)
