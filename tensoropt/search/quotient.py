"""A smaller problem that no strategy can be cheaper in: configurations that are alike as one.

Devices that are linked alike can be exchanged, and then most configurations have others that
differ from them in nothing but which of these devices do what. Their costs are the same, and so
are, in another order, the costs between them and all their neighbours. Here such configurations
are one class. A class costs what each of its configurations costs, and an edge between two classes
what its cheapest cell between them costs. So no strategy costs less than its classes do: bounds
of the classes bound strategies. They lose nothing by it where what is alike can be exchanged,
because messages between alike slots are equal then; elsewhere they may.

What is alike is found by numbers, not asked for: slots whose rows have the same costs in some
order, and configurations of equal costs and alike slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from tensoropt.search.problem import Edge, Node, Problem

__all__ = ["Quotient", "merged", "quotient"]

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

_ROUNDS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Quotient:
    """The classes of a problem's configurations.

    Attributes:
        problem: of the classes; the same nodes and edges.
        class_of: for each node int64[configurations], the class of each.
        source_classes, target_classes: for each edge int64[slots], the class of each slot at its
            end, by which the edge's tables in ``problem`` are numbered.
    """

    problem: Problem
    class_of: tuple[Int64Array, ...]
    source_classes: tuple[Int64Array, ...]
    target_classes: tuple[Int64Array, ...]


def quotient(problem: Problem, rounds: int = _ROUNDS) -> Quotient:
    """Find the classes, by colour refinement: what differs in what surrounds it is told apart.

    Every round passes over all different tables once; a last pass reduces them.
    """
    colours = _Colours(problem)
    for _ in range(rounds):
        colours.refine()
    names: dict[bytes, tuple[Int64Array, Int64Array]] = {}
    nodes, members, class_of = [], [], []
    for node, mark in zip(problem.nodes, colours.of_node, strict=True):
        first, number_of = _numbered(mark, names)
        nodes.append(Node(node.name, node.memory[first], node.time[first]))
        members.append(first)
        class_of.append(number_of)
    near, far = (
        tuple(_numbered(mark, names)[1] for mark in marks)
        for marks in (colours.at_source, colours.at_target)
    )
    edges = _edges(problem, members, near, far)
    return Quotient(Problem(tuple(nodes), tuple(edges)), tuple(class_of), near, far)


class _Colours:
    """A number for every configuration and slot: the same for those that are alike so far."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.of_node = [_mixed(node.memory) + _mixed(_mixed(node.time)) for node in problem.nodes]
        empty = np.zeros(0, np.uint64)
        self.at_source = [empty for _ in problem.edges]
        self.at_target = [empty for _ in problem.edges]

    def refine(self) -> None:
        """Slots by the configurations that have them and the costs to others; then those by them.

        Equal arrays are one object, so that what is the same is worked out once.
        """
        own = _Shared()
        nodes = [own(mark) for mark in self.of_node]
        slots: dict[tuple[int, int], UInt64Array] = {}
        crossed: dict[tuple[int, int, int, int], tuple[UInt64Array, UInt64Array]] = {}
        for number, edge in enumerate(self.problem.edges):
            ends = []
            for node, of_node, count in (
                (edge.source, edge.source_slots, edge.time.shape[0]),
                (edge.target, edge.target_slots, edge.time.shape[1]),
            ):
                key = id(nodes[node]), id(of_node)
                if key not in slots:
                    slots[key] = own(_gathered(_mixed(nodes[node]), of_node, count))
                ends.append(slots[key])
            across = id(edge.time), id(edge.memory), id(ends[0]), id(ends[1])
            if across not in crossed:
                crossed[across] = _crossed(edge.memory, edge.time, *ends)
            self.at_source[number], self.at_target[number] = crossed[across]
        marks = list(nodes)
        for number, edge in enumerate(self.problem.edges):
            source, target = self.at_source[number], self.at_target[number]
            marks[edge.source] = _joint(marks[edge.source], source[edge.source_slots])
            marks[edge.target] = _joint(marks[edge.target], target[edge.target_slots])
        self.of_node = marks


class _Shared:
    """Of equal arrays the first."""

    def __init__(self) -> None:
        self._known: dict[bytes, UInt64Array] = {}

    def __call__(self, array: UInt64Array) -> UInt64Array:
        return self._known.setdefault(array.tobytes(), array)


def _edges(
    problem: Problem,
    members: Sequence[Int64Array],
    near: Sequence[Int64Array],
    far: Sequence[Int64Array],
) -> list[Edge]:
    tables: dict[tuple[int, int], tuple[Int64Array, Int64Array]] = {}
    known: dict[tuple[int, int, int, int, int, int], Edge] = {}
    edges = []
    for edge, rows, columns in zip(problem.edges, near, far, strict=True):
        one, other = members[edge.source], members[edge.target]
        table = id(edge.time), id(edge.memory)
        key = *table, id(edge.source_slots), id(edge.target_slots), id(one), id(other)
        if key not in known:
            if table not in tables:
                tables[table] = tuple(
                    _cheapest(costs, rows, columns, int(rows.max()) + 1, int(columns.max()) + 1)
                    for costs in (edge.memory, edge.time)
                )  # type: ignore[assignment]
            known[key] = Edge(
                edge.source,
                edge.target,
                rows[edge.source_slots[one]],
                columns[edge.target_slots[other]],
                *tables[table],
            )
        edges.append(known[key].between(edge.source, edge.target))
    return edges


def _numbered(
    marks: UInt64Array, known: dict[bytes, tuple[Int64Array, Int64Array]]
) -> tuple[Int64Array, Int64Array]:
    """One of each class, and the class of each; classes are numbered as they come.

    Equal numberings are the same arrays, whatever the marks are.
    """
    name = marks.tobytes()
    if name not in known:
        _, first, numbers = np.unique(marks, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        classes = rank[numbers.ravel()]
        known[name] = known.setdefault(classes.tobytes(), (first[order], classes))
    return known[name]


def _mixed(values: npt.NDArray[np.int64] | UInt64Array) -> UInt64Array:
    """A number for each that looks random; sums of such tell sets of numbers apart."""
    mixed = np.empty(values.size, np.uint64)
    _mix_all(values.view(np.uint64), mixed)
    return mixed


@numba.njit(cache=True, nogil=True)
def _mix(value: np.uint64) -> np.uint64:
    """Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014)."""
    value = (value + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(32))


@numba.njit(cache=True, nogil=True)
def _mix_all(values: UInt64Array, out: UInt64Array) -> None:
    for place in range(values.size):
        out[place] = _mix(values[place])


@numba.njit(cache=True, nogil=True)
def _joint(one: UInt64Array, other: UInt64Array) -> UInt64Array:
    out = np.empty_like(one)
    for place in range(one.size):
        out[place] = _mix(_mix(one[place]) + other[place])
    return out


@numba.njit(cache=True, nogil=True)
def _gathered(marks: UInt64Array, slots: Int64Array, count: int) -> UInt64Array:
    """For every slot the sum of the marks of those that have it."""
    out = np.zeros(count, np.uint64)
    for place in range(marks.size):
        out[slots[place]] += marks[place]
    return out


@numba.njit(cache=True, nogil=True)
def _crossed(
    memory: Int64Array, time: Int64Array, near: UInt64Array, far: UInt64Array
) -> tuple[UInt64Array, UInt64Array]:
    """The marks of slots, by what they were and by the costs to all slots of the other end."""
    rows, columns = np.empty_like(near), np.zeros_like(far)
    for row in range(time.shape[0]):
        total = np.uint64(0)
        for column in range(time.shape[1]):
            cost = np.uint64(time[row, column]) + (np.uint64(memory[row, column]) << np.uint64(20))
            total += _mix(cost ^ far[column])
            columns[column] += _mix(cost ^ near[row])
        rows[row] = _mix(total + _mix(near[row]))
    for column in range(time.shape[1]):
        columns[column] = _mix(columns[column] + _mix(far[column]))
    return rows, columns


@numba.njit(cache=True, nogil=True)
def _cheapest(
    costs: Int64Array, rows: Int64Array, columns: Int64Array, row_count: int, column_count: int
) -> Int64Array:
    found = np.full((row_count, column_count), np.iinfo(np.int64).max)
    for row in range(costs.shape[0]):
        out = found[rows[row]]
        for column in range(costs.shape[1]):
            out[columns[column]] = min(out[columns[column]], costs[row, column])
    return found


def merged(problem: Problem) -> Problem:
    """The same problem with one edge for all that join two nodes at the same slots."""
    together: dict[tuple[int, int, int, int, tuple[int, ...]], list[Edge]] = {}
    numbers: dict[bytes, int] = {}
    number_of: dict[int, int] = {}
    for edge in problem.edges:
        slots = []
        for array in (edge.source_slots, edge.target_slots):
            if id(array) not in number_of:
                number_of[id(array)] = numbers.setdefault(array.tobytes(), len(numbers))
            slots.append(number_of[id(array)])
        key = edge.source, edge.target, slots[0], slots[1], edge.time.shape
        together.setdefault(key, []).append(edge)
    if len(together) == len(problem.edges):
        return problem
    sums: dict[tuple[tuple[int, int], ...], Edge] = {}
    edges = []
    for (source, target, near, far, _), alike in together.items():
        tables = (near, far), *((id(edge.time), id(edge.memory)) for edge in alike)
        if tables not in sums:
            first = alike[0]
            sums[tables] = Edge(
                source,
                target,
                first.source_slots,
                first.target_slots,
                np.sum([edge.memory for edge in alike], axis=0),
                np.sum([edge.time for edge in alike], axis=0),
            )
        edges.append(sums[tables].between(source, target))
    return Problem(problem.nodes, tuple(edges))
