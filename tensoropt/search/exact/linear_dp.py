"""Algorithm 3 of the paper: the frontier of a linear graph by dynamic programming over slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Float64Array
from tensoropt.search.exact.through_edge import through_edge
from tensoropt.search.pareto.back_pointers import Derivations
from tensoropt.search.pareto.frontier import Points
from tensoropt.search.pareto.table import Cells, Table, multiply

__all__ = ["linear_dp"]

Undominated = Callable[[Table, Float64Array], Table]


@dataclass(frozen=True, slots=True, eq=False)
class _End:
    """What one end of a chain has covered.

    Attributes:
        table: its frontiers, a row for each slot at which it is left.
        edge: to the next node, seen from this end.
        inside: least costs of what it covers, see ``SearchGraph``.
    """

    table: Table
    edge: Cells
    inside: Float64Array

    def work(self, node: Table) -> float:
        """About how many products it takes to cover the next node, too."""
        cells = self.edge.near_count * self.edge.far_count
        arrived = cells * _points(self.table) * _points(self.edge.table)
        return arrived + node.memory.size * (_points(self.table) + _points(self.edge.table))


def _points(table: Table) -> float:
    return table.memory.size / max(table.rows, 1)


def linear_dp(
    nodes: Sequence[Table],
    edges: Sequence[Cells],
    derivations: Derivations,
    undominated: Undominated,
    inside: Sequence[Float64Array],
) -> Points:
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
        undominated: leaves out points that better no known strategy.
        inside: of the nodes, see ``SearchGraph``.
    """
    if not edges:
        return nodes[0].group(np.zeros(nodes[0].rows, dtype=np.int64), 1).points
    forward = _begun(nodes[0], edges[0], inside[0], undominated)
    backward = _begun(nodes[-1], edges[-1].flip(), inside[-1], undominated)
    first, last = 0, len(edges) - 1  # the edges that are left
    while first < last:
        if forward.work(nodes[first + 1]) <= backward.work(nodes[last]):
            first += 1
            forward = _through_node(
                forward, nodes[first], edges[first], inside[first], derivations, undominated
            )
        else:
            node, edge = nodes[last], edges[last - 1].flip()
            backward = _through_node(backward, node, edge, inside[last], derivations, undominated)
            last -= 1
    return _met(forward, backward, derivations, undominated)


def _begun(node: Table, edge: Cells, inside: Float64Array, undominated: Undominated) -> _End:
    reached = node.group(edge.near_slots, edge.near_count)
    return _End(undominated(reached, edge.near_given - inside), edge, inside)


def _arrived(
    end: _End, derivations: Derivations, undominated: Undominated
) -> tuple[Table, Float64Array]:
    """What an end covers with its edge, for each slot beyond; and the least costs of it."""
    edge = end.edge
    slots = np.arange(edge.near_count)
    arrived = through_edge(end.table, np.zeros_like(slots), slots, 1, edge, derivations)
    inside = end.inside + edge.inside
    return undominated(arrived, -edge.far_given - inside), inside


def _through_node(
    end: _End,
    node: Table,
    edge: Cells,
    own: Float64Array,
    derivations: Derivations,
    undominated: Undominated,
) -> _End:
    """One node further, up to ``edge``; ``own`` is inside the node."""
    arrived, inside = _arrived(end, derivations, undominated)
    rows = end.edge.far_slots, np.arange(node.rows), edge.near_slots
    reached = multiply(arrived, node, rows, edge.near_count, derivations)
    inside = inside + own
    return _End(undominated(reached, edge.near_given - inside), edge, inside)


def _met(
    forward: _End, backward: _End, derivations: Derivations, undominated: Undominated
) -> Points:
    """What both ends cover with the edge between them, which the smaller one goes through."""
    if forward.table.memory.size > backward.table.memory.size:
        forward, backward = backward, forward
    arrived, inside = _arrived(forward, derivations, undominated)
    slots = np.arange(arrived.rows)
    whole = multiply(arrived, backward.table, (slots, slots, np.zeros_like(slots)), 1, derivations)
    inside = inside + backward.inside
    return undominated(whole, -inside[None]).points
