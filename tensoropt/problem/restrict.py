"""The problem with fewer configurations to choose from, as bounds leave them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.problem.model import CostTable, Edge, EdgeKind, Node, Problem, SlotMap

__all__ = ["remaining_slots", "restrict", "whole_strategies"]


def restrict(problem: Problem, kept: Sequence[Int64Array]) -> Problem:
    """The problem of some configurations of each node, without the slots that none of them has.

    Args:
        problem: to choose from.
        kept: per node the numbers of its configurations that stay, in their new order.
    """
    nodes = tuple(
        Node(node.name, node.memory[own], node.time[own])
        for node, own in zip(problem.nodes, kept, strict=True)
    )
    slots = _Slots(kept)
    kinds: dict[tuple[EdgeKind, bytes, bytes], EdgeKind] = {}
    zeros: dict[tuple[int, ...], Int64Array] = {}
    edges = []
    for edge in problem.edges:
        key = edge.kind, slots.names[edge.source], slots.names[edge.target]
        if key not in kinds:
            rows, source_map = slots.of(edge.kind.source_map, edge.source)
            columns, target_map = slots.of(edge.kind.target_map, edge.target)
            time = _cells(edge.time, rows, columns)
            if problem.edges_take_memory:
                memory = _cells(edge.memory, rows, columns)
            else:
                memory = zeros.setdefault(time.shape, np.zeros_like(time))
            kinds[key] = EdgeKind(source_map, target_map, CostTable(memory, time))
        edges.append(Edge(edge.source, edge.target, kinds[key]))
    return Problem(nodes, tuple(edges))


def remaining_slots(problem: Problem, kept: Sequence[Int64Array]) -> Int64Array:
    """The slots of all edges' ends that ``restrict(problem, kept)`` still has.

    Slots are numbered through: those of all edges at their sources, then those at their targets.
    """
    slots = _Slots(kept)
    edges = problem.edges
    ends = [(edge.kind.source_map, edge.source, edge.time.shape[0]) for edge in edges]
    ends += [(edge.kind.target_map, edge.target, edge.time.shape[1]) for edge in edges]
    found: list[Int64Array] = [np.zeros(0, dtype=np.int64)]
    begin = 0
    for slot_map, node, count in ends:
        found.append(begin + slots.of(slot_map, node)[0])
        begin += count
    return np.concatenate(found)


def whole_strategies(kept: Sequence[Int64Array], strategies: Int32Array) -> Int32Array:
    """Strategies of ``restrict(problem, kept)``, int32[any, nodes], by the problem's numbers."""
    found = np.empty_like(strategies)
    for node, own in enumerate(kept):
        found[:, node] = own[strategies[:, node]]
    return found


class _Slots:
    """The slots that some configurations of nodes have, once for all ends that are alike."""

    def __init__(self, kept: Sequence[Int64Array]) -> None:
        self._kept = kept
        self.names = [own.tobytes() for own in kept]
        self._known: dict[tuple[SlotMap, bytes], tuple[Int64Array, SlotMap]] = {}

    def of(self, slot_map: SlotMap, node: int) -> tuple[Int64Array, SlotMap]:
        """The slots of a node's configurations, ascending; and which of them each has."""
        key = slot_map, self.names[node]
        if key not in self._known:
            own = slot_map.slots[self._kept[node]]
            remaining, renumbered = np.unique(own, return_inverse=True)
            self._known[key] = remaining, SlotMap(renumbered.ravel())
        return self._known[key]


def _cells(table: Int64Array, rows: Int64Array, columns: Int64Array) -> Int64Array:
    found: Int64Array = table.take(rows, axis=0).take(columns, axis=1)
    return found
