"""Algorithm 3 of the paper: the frontier of a linear graph by dynamic programming over slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Float64Array
from tensoropt.search.exact.edge_table import EdgeTable
from tensoropt.search.exact.through_edge import through_edge
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.table import Table, multiply

__all__ = ["linear_dp"]

Undominated = Callable[[Table, Float64Array], Table]


@dataclass(frozen=True, slots=True, eq=False)
class _End:
    """What one end of a chain has covered.

    Attributes:
        table: its frontiers, a row for each slot at which it is left.
        edge: to the next node, seen from this end.
        least: float64[W], least costs of what it covers, see ``SearchGraph``.
        undominated: see `linear_dp`.
        pointers: of all points.
    """

    table: Table
    edge: EdgeTable
    least: Float64Array
    undominated: Undominated
    pointers: BackPointers

    def products_with(self, node: Table) -> float:
        """About how many products it takes to cover the next node, too."""
        cells = self.edge.near_count * self.edge.far_count
        arrived = cells * _points(self.table) * _points(self.edge.table)
        return arrived + node.memory.size * (_points(self.table) + _points(self.edge.table))

    def to_edge(self, table: Table, edge: EdgeTable, least: Float64Array) -> _End:
        """Such an end with other frontiers, up to an edge."""
        found = self.undominated(table, edge.near_messages - least)
        return _End(found, edge, least, self.undominated, self.pointers)

    def arrived(self) -> Table:
        """What it covers with its edge, for each slot beyond."""
        edge = self.edge
        slots = np.arange(edge.near_count)
        found = through_edge(self.table, np.zeros_like(slots), slots, 1, edge, self.pointers)
        return self.undominated(found, -edge.far_messages - self.least)

    def through(self, node: Table, edge: EdgeTable, least: Float64Array) -> _End:
        """One node further, up to ``edge``; ``least`` is the node's."""
        rows = self.edge.far_slots, np.arange(node.rows), edge.near_slots
        found = multiply(self.arrived(), node, rows, edge.near_count, self.pointers)
        return self.to_edge(found, edge, self.least + least)


def _points(table: Table) -> float:
    return table.memory.size / max(table.rows, 1)


def linear_dp(
    nodes: Sequence[Table],
    edges: Sequence[EdgeTable],
    pointers: BackPointers,
    undominated: Undominated,
    least: Sequence[Float64Array],
) -> Table:
    """The cost frontier of a chain (paper, Algorithm 3), exactly, from both ends.

    State: the slot at which the tensor leaves node i; its frontier covers nodes 1 to i with the
    edges between them. Recurrence: through the edge to each slot where node i+1 takes it,
    CF'(t) unites CF(s) ⊗ F(e, s, t) over s; then times each of the node's states, united by the
    slot where that state's output leaves: CF(s') unites CF'(t(k)) ⊗ F(o, k) over the k of s'.
    With K states, L slots and frontiers of P points this is O(P·L² + P·K log(P·K)) a node, where
    going over pairs of configurations costs O(P·K²). The end that takes fewer products goes first,
    so that a large table at one end is multiplied with what is small, not with a large edge.

    Args:
        nodes: for each node of the chain its states.
        edges: for each consecutive pair the edge, seen from the earlier node.
        undominated: leaves out points outside the search region.
        least: of the nodes, see ``SearchGraph``.

    Returns:
        One row.
    """
    if not edges:
        return nodes[0].group(np.zeros(nodes[0].rows, dtype=np.int64), 1)
    forward, backward = (
        _End(node, edge, own, undominated, pointers).to_edge(
            node.group(edge.near_slots, edge.near_count), edge, own
        )
        for node, edge, own in (
            (nodes[0], edges[0], least[0]),
            (nodes[-1], edges[-1].flip(), least[-1]),
        )
    )
    first, last = 0, len(edges) - 1  # the edges that are left
    while first < last:
        if forward.products_with(nodes[first + 1]) <= backward.products_with(nodes[last]):
            first += 1
            forward = forward.through(nodes[first], edges[first], least[first])
        else:
            backward = backward.through(nodes[last], edges[last - 1].flip(), least[last])
            last -= 1
    # The smaller end goes through the edge between them.
    if forward.table.memory.size > backward.table.memory.size:
        forward, backward = backward, forward
    slots = np.arange(forward.edge.far_count)
    ends = slots, slots, np.zeros_like(slots)
    found = multiply(forward.arrived(), backward.table, ends, 1, pointers)
    return undominated(found, -(forward.least + backward.least)[None])
