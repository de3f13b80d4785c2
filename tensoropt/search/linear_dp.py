"""Algorithm 3 of the paper: the frontier of a linear graph by dynamic programming over slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.search.derivation import Derivations
from tensoropt.search.frontier import Points
from tensoropt.search.table import Cells, Table, multiply
from tensoropt.search.through_edge import through_edge

__all__ = ["linear_dp"]

Float64Array = npt.NDArray[np.float64]


def linear_dp(
    nodes: Sequence[Table],
    edges: Sequence[Cells],
    derivations: Derivations,
    hopeful: Callable[[Table, Float64Array], Table],
    inside: Sequence[Float64Array],
) -> Points:
    """The cost frontier of a chain (paper, Algorithm 3), exactly.

    State: the slot at which the tensor leaves node i; its frontier covers nodes 1 to i with the
    edges between them. Recurrence: through the edge to each slot where node i+1 takes it,
    CF'(t) unites CF(s) ⊗ F(e, s, t) over s; then times each of the node's states, united by the
    slot where that state's output leaves: CF(s') unites CF'(t(k)) ⊗ F(o, k) over the k of s'.
    With K states, L slots and frontiers of P points this is O(P·L² + P·K log(P·K)) a node, where
    going over pairs of configurations costs O(P·K²).

    Args:
        nodes: for each node of the chain its states.
        edges: for each consecutive pair the edge, seen from the earlier node.
        hopeful: leaves out points that better no known strategy.
        inside: of the nodes, see ``SearchGraph``.
    """
    if not edges:
        return nodes[0].group(np.zeros(nodes[0].rows, dtype=np.int64), 1).points
    reached = nodes[0].group(edges[0].near_slots, edges[0].near_count)
    behind = inside[0]
    reached = hopeful(reached, edges[0].near_given - behind)
    for position, edge in enumerate(edges, start=1):
        slots = np.arange(edge.near_count)
        arrived = through_edge(reached, np.zeros_like(slots), slots, 1, edge, derivations)
        behind = behind + edge.inside
        arrived = hopeful(arrived, -edge.far_given - behind)
        node = nodes[position]
        behind = behind + inside[position]
        if position < len(edges):
            leaving, count = edges[position].near_slots, edges[position].near_count
        else:
            leaving, count = np.zeros(node.rows, dtype=np.int64), 1
        reached = multiply(
            arrived, node, (edge.far_slots, np.arange(node.rows), leaving), count, derivations
        )
        given = edges[position].near_given if position < len(edges) else np.zeros((1, behind.size))
        reached = hopeful(reached, given - behind)
    return reached.points
