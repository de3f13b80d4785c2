"""The graph that eliminations simplify: frontiers for each node's states and each edge's slots."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tensoropt.search.derivation import Derivations
from tensoropt.search.frontier import ELIMINATIONS, Points, product
from tensoropt.search.problem import Edge, Problem
from tensoropt.search.table import Cells, Table, joint_keys, multiply

__all__ = ["SearchGraph", "joint_near_slots"]

Int64Array = npt.NDArray[np.int64]


def _compact(edge: Edge) -> Cells:
    """The edge's cells, without slots that no configuration has and with equal slots merged."""
    sources, source_slots = np.unique(edge.source_slots, return_inverse=True)
    targets, target_slots = np.unique(edge.target_slots, return_inverse=True)
    used = np.ix_(sources, targets)
    costs = np.stack([edge.memory[used], edge.time[used]])
    _, first, merged = np.unique(
        costs.transpose(1, 0, 2).reshape(sources.size, -1),
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    costs, source_slots = costs[:, first], merged.ravel()[source_slots]
    _, first, merged = np.unique(
        costs.transpose(2, 0, 1).reshape(targets.size, -1),
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    costs, target_slots = costs[:, :, first], merged.ravel()[target_slots]
    return Cells(source_slots, target_slots, costs.shape[1], costs.shape[2], Table.single(*costs))


def _merge_parallel(first: Cells, second: Cells, derivations: Derivations) -> Cells:
    """Edge elimination (paper, equation 5): one edge between the pairs of slots that occur."""
    near, near_states = joint_keys([first.near_slots, second.near_slots], first.near_slots.size)
    far, far_states = joint_keys([first.far_slots, second.far_slots], first.far_slots.size)
    rows = [
        np.add.outer(
            cells.near_slots[near_states] * cells.far_count, cells.far_slots[far_states]
        ).ravel()
        for cells in (first, second)
    ]
    count = near_states.size * far_states.size
    table = multiply(
        first.table, second.table, (rows[0], rows[1], np.arange(count)), count, derivations
    )
    return Cells(near, far, near_states.size, far_states.size, table)


class SearchGraph:
    """Nodes with states, at most one edge between two nodes, and what is already decided.

    Edges have no direction for the search: they are stored from the lower numbered node and seen
    from either end. Parallel edges are merged the moment they arise.

    Attributes:
        nodes: for each remaining node its states' frontiers.
        constant: the frontier of everything that no longer depends on any remaining node.
        counts: how often each kind of elimination was applied.
        derivations: what the identities of all points stand for.
    """

    def __init__(self, problem: Problem) -> None:
        self.derivations = Derivations()
        self.nodes = {
            number: Table.single(
                node.memory, node.time, self.derivations.leaves(number, node.configurations)
            )
            for number, node in enumerate(problem.nodes)
        }
        self.constant = Points.unit()
        self.counts = dict.fromkeys(ELIMINATIONS, 0)
        self._edges: dict[tuple[int, int], Cells] = {}
        self._neighbours: dict[int, set[int]] = {number: set() for number in self.nodes}
        for edge in problem.edges:
            self.connect(edge.source, edge.target, _compact(edge))

    def neighbours(self, node: int) -> list[int]:
        """The nodes that ``node`` has an edge with, ascending."""
        return sorted(self._neighbours[node])

    def degree(self, node: int) -> int:
        """How many neighbours ``node`` has."""
        return len(self._neighbours[node])

    def states(self, node: int) -> int:
        """How many states ``node`` has."""
        return self.nodes[node].rows

    def edge(self, near: int, far: int) -> Cells:
        """The edge between two nodes, seen from ``near``."""
        if near < far:
            return self._edges[near, far]
        return self._edges[far, near].flip()

    def near_slots(self, near: int, far: int) -> Int64Array:
        """int64[states of near], their slots on the edge to ``far``."""
        if near < far:
            return self._edges[near, far].near_slots
        return self._edges[far, near].far_slots

    def connect(self, near: int, far: int, cells: Cells) -> None:
        """Add an edge, seen from ``near``, and merge it with one that is there already."""
        if far in self._neighbours[near]:
            cells = _merge_parallel(self.edge(near, far), cells, self.derivations)
            self.counts["edge"] += 1
        self._edges[min(near, far), max(near, far)] = cells if near < far else cells.flip()
        self._neighbours[near].add(far)
        self._neighbours[far].add(near)

    def disconnect(self, near: int, far: int) -> Cells:
        """Take out an edge; it is returned as seen from ``near``."""
        cells = self.edge(near, far)
        del self._edges[min(near, far), max(near, far)]
        self._neighbours[near].discard(far)
        self._neighbours[far].discard(near)
        return cells

    def remove(self, node: int) -> Table:
        """Take out a node and its remaining edges; its states are returned."""
        for neighbour in self.neighbours(node):
            self.disconnect(node, neighbour)
        del self._neighbours[node]
        return self.nodes.pop(node)

    def settle(self, points: Points) -> None:
        """Multiply ``points``, which nothing else depends on, into the constant frontier."""
        self.constant = product(self.constant, points, self.derivations)


def joint_near_slots(graph: SearchGraph, node: int, but: int) -> tuple[Int64Array, Int64Array]:
    """``joint_keys`` of ``node``'s states over all its edges but the one to ``but``."""
    columns = [graph.near_slots(node, far) for far in graph.neighbours(node) if far != but]
    return joint_keys(columns, graph.states(node))
