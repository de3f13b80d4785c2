"""Node elimination (paper, equation 4): a node between two others becomes an edge."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensoropt.arrays import Float64Array
from tensoropt.search.exact.edge_table import EdgeTable
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.exact.through_edge import through_edge
from tensoropt.search.flat.joint_slots import joint_keys
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.table import Table

__all__ = ["eliminate_node"]


def eliminate_node(graph: SearchGraph, node: int) -> None:
    """Replace ``node``, which has exactly two neighbours h and j, by an edge between them.

    F(e_hj, w, p) unites F(e_hi, w, a(k)) ⊗ F(o_i, k) ⊗ F(e_ij, b(k), p) over the states k of the
    node, where a and b are k's slots at its two ends. States with the same two slots are first
    reduced to one frontier. Then the edges are taken one after the other, first the one with the
    smaller intermediate table: O(L³) products for L slots, instead of O(K³) for K states.
    """
    first, second = graph.neighbours(node)
    ends = graph.stored(node, first), graph.stored(node, second)
    least = graph.least[node]

    def compute(tables: list[Table], names: BackPointers) -> Table:
        states, *edges = tables
        near, far = (
            edge.with_table(table, flipped=node > end)
            for edge, table, end in zip(ends, edges, (first, second), strict=True)
        )
        return _through(states, near, far, least, graph.undominated, names)

    tables = [graph.nodes[node], *(edge.table for edge in ends)]
    slots = [slots for edge in ends for slots in (edge.near_slots, edge.far_slots)]
    kind = f"node {node > first} {node > second}"
    table = graph.made(kind, tables, slots, compute)
    near, far = (graph.end(end, node) for end in (first, second))
    graph.remove(node)
    graph.counts["node"] += 1
    graph.least[first] = graph.least[first] + least
    near = near._replace(messages=near.messages + least)
    graph.connect(first, second, EdgeTable.between(near, far, table))
    graph.tidy(first)
    graph.tidy(second)


def _through(
    states: Table,
    near: EdgeTable,
    far: EdgeTable,
    least: Float64Array,
    undominated: Callable[[Table, Float64Array], Table],
    names: BackPointers,
) -> Table:
    """Carry points from the far end of one edge to that of the other.

    Args:
        states: of the node between them, which is the near end of both edges.
        near, far: both edges.
        least: the least costs of the nodes that were eliminated into the node.
        undominated: drops points that better no known strategy.
        names: the store of identities.

    Returns:
        A row for each pair of the edges' far slots.
    """
    pairs, _ = joint_keys([near.near_slots, far.near_slots], states.rows)
    count = int(pairs.max()) + 1

    def additions(inner: EdgeTable, outer: EdgeTable) -> int:
        through = outer.near_count * inner.far_count
        return count * inner.far_count + through * outer.far_count

    turned = additions(far, near) < additions(near, far)
    inner, outer = (far, near) if turned else (near, far)
    key, example = joint_keys([outer.near_slots, inner.near_slots], states.rows)
    at_outer, at_inner = outer.near_slots[example], inner.near_slots[example]
    grouped = undominated(
        states.group(key, example.size),
        outer.near_messages[at_outer] + inner.near_messages[at_inner] - least,
    )
    halfway = through_edge(grouped, at_outer, at_inner, outer.near_count, inner, names)
    rest = outer.near_messages[:, None] - inner.far_messages - least
    halfway = undominated(halfway, rest.reshape(halfway.rows, least.size))
    # Rows are (outer slot, inner end's slot); as batches they go by the inner end's.
    table = through_edge(
        halfway.turned(outer.near_count),
        np.repeat(np.arange(inner.far_count), outer.near_count),
        np.tile(np.arange(outer.near_count), inner.far_count),
        inner.far_count,
        outer,
        names,
    )
    return table.turned(inner.far_count) if turned else table
