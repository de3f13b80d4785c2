"""Bounds below every strategy that has a given configuration, by moving costs along edges.

A strategy's weighted cost is u * time + w * memory, a sum of what nodes and edges hold. Here costs
are moved between an edge and the nodes at its ends: what a slot of one gives, the other
takes, so that no strategy's sum changes, and no edge's cost ever becomes negative. Then at any time

    sum over nodes i of min_k cost_i(k)       bounds every strategy from below, and
    that sum - min_k cost_j(k) + cost_j(k)    every strategy in which j has configuration k.

The order of moves is that of sequential tree-reweighted message passing (Kolmogorov, "Convergent
tree-reweighted message passing for energy minimization", 2006): nodes in order, then in reverse,
each giving equal parts of what it holds to the edges ahead of it, and each of these all that it can
to its far end. On a tree the bounds are exact after one pass forward and one back; elsewhere they
grow from pass to pass. A pass takes O(L**2) for an edge between L slots.

Edges' costs are rounded down to units of some 2**-30 of a table's largest, and nodes give whole
units: what is lost makes bounds lower, not wrong. What nodes hold is float64: who uses the bounds
allows for `ROUNDING`, which is far more than all roundings of a search together.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tensoropt.search.problem import Problem
from tensoropt.search.sweeps import Side, Tables, receive, sweep, to_units, whole_units

__all__ = ["ROUNDING", "Bounds", "WeightedBounds", "warm_bounds"]

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

ROUNDING = 1e-11
"""Share of a strategy's weighted cost by which a bound may be too high for its roundings.

A pass adds to what it carries some ten times a node, and each addition rounds by 2**-53 at most:
of a thousand nodes and fifty passes that is less than a tenth of this share.
"""


# To compare weights by their ratio, none among them.
_TINY = 1e-9
# Weights in a pass: what they hold of an edge stays in the first caches.
_AT_ONCE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What is known for one pair of weights.

    Attributes:
        per_nanosecond, per_byte: the weights.
        least: bound of every strategy.
        of_configuration: float64[configurations of all nodes], of those that have it.
        given: float64[slots of all edges], what the edges have given to the nodes at their ends:
            first at the sources' slots, edge by edge, then at the targets'.
    """

    per_nanosecond: float
    per_byte: float
    least: float
    of_configuration: Float64Array
    given: Float64Array


class WeightedBounds:
    """A problem in flat arrays, for many weights.

    Args:
        problem: with costs that are not negative.

    Attributes:
        start: int64[nodes + 1], where each node's configurations are.
        memory, time: of all nodes' configurations.
        slots: int64[any], the slots of configurations at all ends of edges.
        source, target: the ends.
        has_memory: whether edges take any.
    """

    def __init__(self, problem: Problem) -> None:
        counts = np.array([node.configurations for node in problem.nodes])
        self.start = _starts(counts, closed=True)
        self.memory = np.concatenate([node.memory for node in problem.nodes])
        self.time = np.concatenate([node.time for node in problem.nodes])
        edges = problem.edges
        source = [edge.source for edge in edges]
        target = [edge.target for edge in edges]
        tables: dict[tuple[int, int], int] = {}
        slots: dict[int, int] = {}
        table_parts: list[tuple[Int64Array, Int64Array]] = []
        slot_parts: list[Int64Array] = [np.zeros(0, dtype=np.int64)]
        places = 0
        kind: list[int] = []
        near: list[int] = []
        far: list[int] = []
        for edge in edges:
            # Edges that are alike share their arrays, here as in the problem.
            key = id(edge.time), id(edge.memory)
            if key not in tables:
                tables[key] = len(table_parts)
                table_parts.append((edge.time, edge.memory))
            kind.append(tables[key])
            for numbers, found in ((edge.source_slots, near), (edge.target_slots, far)):
                if id(numbers) not in slots:
                    slots[id(numbers)] = places
                    slot_parts.append(numbers)
                    places += numbers.size
                found.append(slots[id(numbers)])
        self._parts = table_parts
        self.has_memory = any(
            memory.any() for memory in {id(part[1]): part[1] for part in table_parts}.values()
        )
        self._kind = np.array(kind, dtype=np.int64)
        self.slots = np.concatenate(slot_parts)
        rows = np.array([edge.time.shape[0] for edge in edges], dtype=np.int64)
        columns = np.array([edge.time.shape[1] for edge in edges], dtype=np.int64)
        nodes = len(problem.nodes)
        held = int(rows.sum())
        self._places = held + int(columns.sum())
        self.source = _side(source, nodes, near, _starts(rows), rows)
        self.target = _side(target, nodes, far, held + _starts(columns), columns)
        self._of_time: Tables | None = None
        if not self.has_memory:
            self._of_time = self.tables(1.0, 0.0)

    def tables(self, per_nanosecond: float, per_byte: float) -> Tables:
        """Of all edges, for a pair of weights."""
        if per_nanosecond == 1 and not self.has_memory and self._of_time is not None:
            return self._of_time
        starts = _starts(np.array([time.size for time, _ in self._parts], dtype=np.int64), True)
        flat = np.empty(starts[-1], dtype=np.int32)
        scales = np.ones(len(self._parts))
        for number, (time, memory) in enumerate(self._parts):
            costs: npt.NDArray[Any] = time
            if per_nanosecond != 1 or self.has_memory:
                costs = per_nanosecond * time + per_byte * memory
            scales[number] = whole_units(float(costs.max()))
            into = flat[starts[number] : starts[number + 1]]
            to_units(costs.reshape(-1), scales[number], into)
        return Tables(flat, starts[self._kind], scales[self._kind])

    def bounds(
        self, per_nanosecond: float, per_byte: float, sweeps: int, given: Float64Array | None = None
    ) -> Bounds:
        """Move costs forward and back so many times, and read off the bounds.

        Args:
            given: where to begin, for the same tables: as of other bounds. Only where edges take
                no memory and a nanosecond weighs as much there.
        """
        (found,) = self.all_bounds([(per_nanosecond, per_byte)], sweeps, [given])
        return found

    def all_bounds(
        self,
        weights: Sequence[tuple[float, float]],
        sweeps: int,
        given: Sequence[Float64Array | None],
        growth: float = 0.0,
    ) -> list[Bounds]:
        """`bounds` of several pairs of weights, in passes that all have in common.

        Args:
            weights: where edges take memory, one pair; else nanoseconds weigh 1 in all, or in none.
            given: for each where to begin, see `bounds`.
            growth: a pair's sweeps end when one adds less than this share to its bound.
        """
        shares = np.array(weights)[:, :, None]
        if not (self.has_memory or shares[:, 0].any()):
            return [self._of_memory(per_byte) for _, per_byte in weights]
        held = np.zeros((len(weights), self._places))
        if not self.has_memory:
            for row, known in zip(held, given, strict=True):
                row[:] = 0 if known is None else known
        costs = shares[:, 0] * self.time + shares[:, 1] * self.memory
        self._receive(costs, held)
        least = np.minimum.reduceat(costs, self.start[:-1], axis=1)
        found = np.full(costs.shape, -np.inf)
        tables = self.tables(*weights[0])
        done: dict[int, Bounds] = {}
        going = np.arange(len(weights))
        total = least.sum(axis=1)
        for sweep_number in range(sweeps + 1):
            before = total
            if sweep_number < sweeps:
                self._forward(tables, costs, least, found, held)
                total = self._backward(tables, costs, least, found, held, is_greedy=False)
            ends = (total - before < growth * total) | (sweep_number >= sweeps - 1)
            for row in np.flatnonzero(ends):
                pair = weights[going[row]]
                bound = np.maximum(found[row], total[row])
                done[int(going[row])] = Bounds(
                    pair[0], pair[1], float(total[row]), bound, held[row].copy()
                )
            if ends.all():
                break
            if ends.any():
                going, total = going[~ends], total[~ends]
                costs, least, found, held = (each[~ends] for each in (costs, least, found, held))
        return [done[number] for number in range(len(weights))]

    def _of_memory(self, per_byte: float) -> Bounds:
        """Bounds where edges cost nothing."""
        costs = per_byte * self.memory
        least = np.minimum.reduceat(costs, self.start[:-1])
        total = float(least.sum())
        each = np.repeat(total - least, np.diff(self.start))
        return Bounds(0.0, per_byte, total, each + costs, np.zeros(self._places))

    def collected(self, bounds: Bounds) -> Float64Array:
        """What edges have given when all has moved back once more.

        Each node then gives all that it can to those before it: on a tree the costs of what
        follows are known exactly at every edge.
        """
        held = bounds.given.copy()[None]
        if bounds.per_nanosecond or self.has_memory:
            costs = bounds.per_nanosecond * self.time + bounds.per_byte * self.memory
            costs = costs[None]
            self._receive(costs, held)
            least = np.minimum.reduceat(costs, self.start[:-1], axis=1)
            tables = self.tables(bounds.per_nanosecond, bounds.per_byte)
            found = np.full(costs.shape, -np.inf)
            self._backward(tables, costs, least, found, held, is_greedy=True)
        collected: Float64Array = held[0]
        return collected

    @property
    def ends(self) -> tuple[Int64Array, Int64Array]:
        """Where each edge's source slots and its target slots begin in what edges have given."""
        return self.source.held, self.target.held

    def _receive(self, costs: Float64Array, held: Float64Array) -> None:
        if held.any():
            for side in (self.source, self.target):
                receive(costs, self.start, held, self.slots, side)

    def _forward(
        self,
        tables: Tables,
        costs: Float64Array,
        least: Float64Array,
        found: Float64Array,
        held: Float64Array,
    ) -> None:
        order = np.arange(least.shape[1])
        sweep(
            order, self.start, self.slots, self.source, self.target, tables, True, False,
            costs, least, found, held,
        )  # fmt: skip

    def _backward(
        self,
        tables: Tables,
        costs: Float64Array,
        least: Float64Array,
        found: Float64Array,
        held: Float64Array,
        *,
        is_greedy: bool,
    ) -> Float64Array:
        order = np.arange(least.shape[1])[::-1].copy()
        total: Float64Array = sweep(
            order, self.start, self.slots, self.target, self.source, tables, False, is_greedy,
            costs, least, found, held,
        )  # fmt: skip
        return total


def warm_bounds(
    table: WeightedBounds,
    weights: Sequence[tuple[float, float]],
    sweeps: int,
    earlier: Sequence[Bounds] = (),
    growth: float = 0.0,
) -> list[Bounds]:
    """The bounds of all weights, on as many threads as there are cores; compiled code runs free.

    Each begins where that of the nearest weight ended before. Its sweeps end when one adds less
    than a share of ``growth`` to it.
    """

    near = {pair: _nearest(pair, earlier) for pair in weights}
    groups = [[pair] for pair in weights]
    if not table.has_memory:
        alike = [pair for pair in weights if pair[0] == 1]
        count = max(1, min(_AT_ONCE, -(-len(alike) // (os.cpu_count() or 1))))
        groups = [[pair] for pair in weights if pair[0] != 1]
        groups += [alike[first : first + count] for first in range(0, len(alike), count)]

    def find(group: list[tuple[float, float]]) -> list[Bounds]:
        return table.all_bounds(group, sweeps, [near[pair] for pair in group], growth)

    with ThreadPoolExecutor(max_workers=min(len(groups), os.cpu_count() or 1)) as pool:
        parts = list(pool.map(find, groups))
    found = {
        pair: each
        for group, part in zip(groups, parts, strict=True)
        for pair, each in zip(group, part, strict=True)
    }
    return [found[pair] for pair in weights]


def _nearest(pair: tuple[float, float], earlier: Sequence[Bounds]) -> Float64Array | None:
    """What edges have given for the nearest weights."""
    near = [each for each in earlier if each.per_nanosecond == pair[0] > 0]
    if not near:
        return None
    ratios = [abs(np.log((each.per_byte + _TINY) / (pair[1] + _TINY))) for each in near]
    return near[int(np.argmin(ratios))].given


def _starts(counts: Int64Array, closed: bool = False) -> Int64Array:
    starts = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts if closed else starts[:-1]


def _side(
    ends: Sequence[int], nodes: int, slots: Sequence[int], held: Int64Array, count: Int64Array
) -> Side:
    node = np.array(ends, dtype=np.int64)
    first = _starts(np.bincount(node, minlength=nodes), closed=True)
    edges = np.argsort(node, kind="stable")
    return Side(first, edges, node, np.array(slots, dtype=np.int64), held, count)
