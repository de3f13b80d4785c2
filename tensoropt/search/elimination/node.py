"""Node elimination (paper, equation 4): a node between two others becomes an edge."""

from __future__ import annotations

import numpy as np

from tensoropt.search.elimination.graph import SearchGraph
from tensoropt.search.table import Cells, joint_keys
from tensoropt.search.through_edge import through_edge

__all__ = ["eliminate_node"]


def eliminate_node(graph: SearchGraph, node: int) -> None:
    """Replace ``node``, which has exactly two neighbours h and j, by an edge between them.

    F(e_hj, w, p) unites F(e_hi, w, a(k)) ⊗ F(o_i, k) ⊗ F(e_ij, b(k), p) over the states k of the
    node, where a and b are k's slots at its two ends. The states that share both slots are first
    reduced to one frontier; then the edges are taken one after the other, the one first whose
    intermediate table is cheaper: with L slots each O(L³) products instead of O(K³).
    """
    first, second = graph.neighbours(node)
    ends = [(first, graph.edge(node, first)), (second, graph.edge(node, second))]
    states = graph.nodes[node]
    pairs = np.unique(ends[0][1].near_slots * states.rows + ends[1][1].near_slots).size

    def work(inner: Cells, outer: Cells) -> int:
        through = outer.near_count * inner.far_count
        return int(pairs * inner.far_count + through * outer.far_count)

    if work(ends[1][1], ends[0][1]) < work(ends[0][1], ends[1][1]):
        ends.reverse()
    (inner_end, inner), (outer_end, outer) = ends
    key, example = joint_keys([outer.near_slots, inner.near_slots], states.rows)
    at_outer, at_inner = outer.near_slots[example], inner.near_slots[example]
    least = graph.inside[node]
    grouped = graph.hopeful(
        states.group(key, example.size),
        outer.near_given[at_outer] + inner.near_given[at_inner] - least,
    )
    halfway = through_edge(grouped, at_outer, at_inner, outer.near_count, inner, graph.derivations)
    inside = least + inner.inside
    rest = outer.near_given[:, None] - inner.far_given - inside
    halfway = graph.hopeful(halfway, rest.reshape(halfway.rows, inside.size))
    # Rows are (outer slot, inner end's slot); as batches they go by the inner end's.
    rows = np.arange(halfway.rows).reshape(outer.near_count, inner.far_count).T.ravel()
    table = through_edge(
        halfway.take(rows),
        np.repeat(np.arange(inner.far_count), outer.near_count),
        np.tile(np.arange(outer.near_count), inner.far_count),
        inner.far_count,
        outer,
        graph.derivations,
    )
    graph.remove(node)
    graph.counts["node"] += 1
    graph.connect(
        inner_end,
        outer_end,
        Cells(
            inner.far_slots,
            outer.far_slots,
            inner.far_count,
            outer.far_count,
            table,
            inner.far_given,
            outer.far_given,
            inside + outer.inside,
        ),
    )
    graph.tidy(inner_end)
    graph.tidy(outer_end)
