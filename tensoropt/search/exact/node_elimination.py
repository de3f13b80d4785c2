"""Node elimination (paper, equation 4): a node between two others becomes an edge."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.exact.through_edge import through_edge
from tensoropt.search.pareto.back_pointers import Derivations
from tensoropt.search.pareto.table import Cells, Table, joint_keys

__all__ = ["eliminate_node"]


def eliminate_node(graph: SearchGraph, node: int) -> None:
    """Replace ``node``, which has exactly two neighbours h and j, by an edge between them.

    F(e_hj, w, p) unites F(e_hi, w, a(k)) ⊗ F(o_i, k) ⊗ F(e_ij, b(k), p) over the states k of the
    node, where a and b are k's slots at its two ends. The states that share both slots are first
    reduced to one frontier; then the edges are taken one after the other, the one first whose
    intermediate table is cheaper: with L slots each O(L³) products instead of O(K³).
    """
    first, second = graph.neighbours(node)
    ends = graph.stored(node, first), graph.stored(node, second)
    least = graph.inside[node]

    def compute(tables: list[Table], names: Derivations) -> Table:
        states, *edges = tables
        near, far = (
            cells.with_table(table, flipped=node > end)
            for cells, table, end in zip(ends, edges, (first, second), strict=True)
        )
        return _through(states, near, far, least, graph.undominated, names)

    tables = [graph.nodes[node], *(cells.table for cells in ends)]
    if graph.memo is None:
        table = compute(tables, graph.derivations)
    else:
        slots = [slots for cells in ends for slots in (cells.near_slots, cells.far_slots)]
        kind = f"node {node > first} {node > second}"
        table = graph.memo.table(kind, tables, slots, compute, graph.derivations)
    graph.remove(node)
    graph.counts["node"] += 1
    near, far = (
        _other_end(cells, node > end) for cells, end in zip(ends, (first, second), strict=True)
    )
    inside = least + ends[0].inside + ends[1].inside
    graph.connect(
        first, second, Cells(near[0], far[0], near[1], far[1], table, near[2], far[2], inside)
    )
    graph.tidy(first)
    graph.tidy(second)


def _other_end(cells: Cells, flipped: bool) -> tuple[Int64Array, int, Float64Array]:
    """Slots, their count and what was given to them, at the end that a node is not at."""
    if flipped:
        return cells.near_slots, cells.near_count, cells.near_given
    return cells.far_slots, cells.far_count, cells.far_given


def _through(
    states: Table,
    near: Cells,
    far: Cells,
    least: Float64Array,
    undominated: Callable[[Table, Float64Array], Table],
    names: Derivations,
) -> Table:
    """From the far end of one edge to that of the other: a row for each pair of their slots.

    Args:
        states: of the node between them, which sees both edges as near.
        least: what has been eliminated into it costs at least.
        undominated: leaves out points that better no known strategy.
        names: of points.
    """
    pairs, _ = joint_keys([near.near_slots, far.near_slots], states.rows)
    count = int(pairs.max()) + 1

    def work(inner: Cells, outer: Cells) -> int:
        through = outer.near_count * inner.far_count
        return count * inner.far_count + through * outer.far_count

    turned = work(far, near) < work(near, far)
    inner, outer = (far, near) if turned else (near, far)
    key, example = joint_keys([outer.near_slots, inner.near_slots], states.rows)
    at_outer, at_inner = outer.near_slots[example], inner.near_slots[example]
    grouped = undominated(
        states.group(key, example.size),
        outer.near_given[at_outer] + inner.near_given[at_inner] - least,
    )
    halfway = through_edge(grouped, at_outer, at_inner, outer.near_count, inner, names)
    inside = least + inner.inside
    rest = outer.near_given[:, None] - inner.far_given - inside
    halfway = undominated(halfway, rest.reshape(halfway.rows, inside.size))
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
