"""Branch elimination (paper, equation 6): a node is merged into one of its neighbours."""

from __future__ import annotations

import numpy as np

from tensoropt.search.elimination.graph import SearchGraph, joint_near_slots
from tensoropt.search.table import multiply
from tensoropt.search.through_edge import through_edge

__all__ = ["eliminate_branch", "merged_states"]


def merged_states(graph: SearchGraph, node: int, into: int) -> int:
    """How many states ``into`` would have after ``eliminate_branch``."""
    keys = [joint_near_slots(graph, *ends)[1] for ends in ((node, into), (into, node))]
    return keys[0].size * keys[1].size


def eliminate_branch(graph: SearchGraph, node: int, into: int) -> None:
    """Merge ``node`` into its neighbour ``into``, which takes over its other edges.

    F(o_h, (w, v)) unites F(o_h, p) ⊗ F(o_i, k) ⊗ F(e_ih, k, p) over the states k of the node whose
    slots on all its other edges together are v, and the states p of the neighbour whose slots on
    all its other edges together are w: what happens elsewhere depends on v and w alone, on every
    edge at once. A node without other edges has one v: its configuration is minimised out.
    """
    node_key, node_example = joint_near_slots(graph, node, into)
    into_key, into_example = joint_near_slots(graph, into, node)
    node_count, into_count = node_example.size, into_example.size
    node_given = graph.given(node, but=into)[node_example]
    into_given = graph.given(into, but=node)[into_example]
    edge = graph.disconnect(node, into)
    # The node's states by key and slot on the edge, carried through the edge key by key.
    pairs, pair = np.unique(node_key * edge.near_count + edge.near_slots, return_inverse=True)
    arrived = through_edge(
        graph.nodes[node].group(pair, pairs.size),
        pairs // edge.near_count,
        pairs % edge.near_count,
        node_count,
        edge,
        graph.derivations,
    )
    inside = graph.inside[node] + edge.inside
    rest = node_given[:, None] - edge.far_given - inside
    arrived = graph.hopeful(arrived, rest.reshape(arrived.rows, inside.size))
    keys, states = np.arange(node_count), np.arange(graph.states(into))
    triples = (
        np.add.outer(keys * edge.far_count, edge.far_slots).ravel(),
        np.tile(states, node_count),
        np.add.outer(keys * into_count, into_key).ravel(),
    )
    merged = multiply(
        arrived, graph.nodes[into], triples, node_count * into_count, graph.derivations
    )
    inside = inside + graph.inside[into]
    rest = node_given[:, None] + into_given - inside
    merged = graph.hopeful(merged, rest.reshape(merged.rows, inside.size))

    # State s of the merged node is (node key, neighbour key) = divmod(s, into_count).
    node_parent = np.repeat(node_example, into_count)
    into_parent = np.tile(into_example, node_count)
    moved = [(into_parent, far, graph.disconnect(into, far)) for far in graph.neighbours(into)]
    moved += [(node_parent, far, graph.disconnect(node, far)) for far in graph.neighbours(node)]
    graph.remove(node)
    graph.nodes[into], graph.inside[into] = merged, inside
    graph.counts["branch"] += 1
    for parents, far, cells in moved:
        graph.connect(into, far, cells.with_states(parents))
    graph.tidy(into)
