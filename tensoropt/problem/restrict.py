"""The problem with fewer configurations to choose from, as bounds leave them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.problem.model import CostTable, Edge, EdgeKind, Node, Problem, SlotMap

__all__ = ["remaining_slots", "restrict"]


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
    restriction = _Restriction(problem.edges_take_memory)
    numbers = restriction.numbers(kept)
    kinds: dict[tuple[EdgeKind, int, int], EdgeKind] = {}
    edges = []
    for edge in problem.edges:
        key = edge.kind, numbers[edge.source], numbers[edge.target]
        if key not in kinds:
            kinds[key] = restriction.kind(*key)
        edges.append(Edge(edge.source, edge.target, kinds[key]))
    return Problem(nodes, tuple(edges))


def remaining_slots(problem: Problem, kept: Sequence[Int64Array]) -> Int64Array:
    """The slots of all edges' ends that ``restrict(problem, kept)`` still has.

    Slots are numbered through: those of all edges at their sources, then those at their targets.
    """
    restriction = _Restriction(problem.edges_take_memory)
    numbers = restriction.numbers(kept)
    places: list[Int64Array] = [np.zeros(0, dtype=np.int64)]
    begin = 0
    for edge in problem.edges:
        slots, _ = restriction.slots(edge.kind.source_map, numbers[edge.source])
        places.append(begin + slots)
        begin += edge.time.shape[0]
    for edge in problem.edges:
        slots, _ = restriction.slots(edge.kind.target_map, numbers[edge.target])
        places.append(begin + slots)
        begin += edge.time.shape[1]
    return np.concatenate(places)


class _Restriction:
    """Slots and costs of edges among some configurations, once for all that are alike.

    Sets of configurations are named by numbers.

    Args:
        takes_memory: whether edges take any.
    """

    def __init__(self, takes_memory: bool) -> None:
        self._takes_memory = takes_memory
        self._sets: list[Int64Array] = []
        self._slots: dict[tuple[SlotMap, int], tuple[Int64Array, SlotMap]] = {}
        self._zeros: dict[tuple[int, ...], Int64Array] = {}

    def numbers(self, kept: Sequence[Int64Array]) -> list[int]:
        """Per node the number of its set of configurations; equal sets have one."""
        known: dict[bytes, int] = {}
        found = []
        for own in kept:
            found.append(known.setdefault(own.tobytes(), len(known)))
            if len(known) > len(self._sets):
                self._sets.append(own)
        return found

    def slots(self, slot_map: SlotMap, number: int) -> tuple[Int64Array, SlotMap]:
        """The slots that configurations of a set have, ascending; and which of them each has."""
        key = slot_map, number
        if key not in self._slots:
            own = slot_map.slots[self._sets[number]]
            remaining, renumbered = np.unique(own, return_inverse=True)
            self._slots[key] = remaining, SlotMap(renumbered.ravel())
        return self._slots[key]

    def kind(self, kind: EdgeKind, source: int, target: int) -> EdgeKind:
        """A kind of edges between two sets of configurations."""
        rows, source_map = self.slots(kind.source_map, source)
        columns, target_map = self.slots(kind.target_map, target)
        time = _cells(kind.costs.time, rows, columns)
        if self._takes_memory:
            memory = _cells(kind.costs.memory, rows, columns)
        else:
            memory = self._zeros.setdefault(time.shape, np.zeros_like(time))
        return EdgeKind(source_map, target_map, CostTable(memory, time))


def _cells(table: Int64Array, rows: Int64Array, columns: Int64Array) -> Int64Array:
    found: Int64Array = table.take(rows, axis=0).take(columns, axis=1)
    return found
