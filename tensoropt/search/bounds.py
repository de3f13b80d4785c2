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

Costs are float64 here. Whole numbers below 2**53 are exact, shares and weights are rounded: who
uses the bounds allows for `ROUNDING`, which is far more than all roundings of a search together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from tensoropt.search.problem import Problem

__all__ = ["ROUNDING", "Bounds", "WeightedBounds"]

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

ROUNDING = 1e-11
"""Share of a strategy's weighted cost by which a bound may be too high for its roundings.

A pass adds to what it carries some ten times a node, and each addition rounds by 2**-53 at most:
of a thousand nodes and fifty passes that is less than a tenth of this share.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What is known for one pair of weights.

    Attributes:
        per_nanosecond, per_byte: the weights.
        least: bound of every strategy.
        of_configuration: float64[configurations of all nodes], of those that have it.
    """

    per_nanosecond: float
    per_byte: float
    least: float
    of_configuration: Float64Array


class WeightedBounds:
    """A problem in flat arrays, for many weights.

    Args:
        problem: with costs that are not negative.

    Attributes:
        start: int64[nodes + 1], where each node's configurations are.
    """

    def __init__(self, problem: Problem) -> None:
        counts = np.array([node.configurations for node in problem.nodes])
        self.start = _starts(counts, closed=True)
        self._memory = np.concatenate([node.memory for node in problem.nodes])
        self._time = np.concatenate([node.time for node in problem.nodes])
        edges = problem.edges
        self._source = np.array([edge.source for edge in edges], dtype=np.int64)
        self._target = np.array([edge.target for edge in edges], dtype=np.int64)
        tables: dict[tuple[int, int], int] = {}
        slots: dict[int, int] = {}
        table_parts: list[tuple[Int64Array, Int64Array]] = []
        slot_parts: list[Int64Array] = [np.zeros(0, dtype=np.int64)]
        cells = places = 0
        kind: list[int] = []
        near: list[int] = []
        far: list[int] = []
        for edge in edges:
            # Edges that are alike share their arrays, here as in the problem.
            key = id(edge.time), id(edge.memory)
            if key not in tables:
                tables[key] = cells
                table_parts.append((edge.time, edge.memory))
                cells += edge.time.size
            kind.append(tables[key])
            for numbers, found in ((edge.source_slots, near), (edge.target_slots, far)):
                if id(numbers) not in slots:
                    slots[id(numbers)] = places
                    slot_parts.append(numbers)
                    places += numbers.size
                found.append(slots[id(numbers)])
        self._tables = table_parts
        self._has_memory = any(memory.any() for _, memory in table_parts)
        self._table = np.array(kind, dtype=np.int64)
        self._source_slots = np.array(near, dtype=np.int64)
        self._target_slots = np.array(far, dtype=np.int64)
        self._slots = np.concatenate(slot_parts)
        self._rows = np.array([edge.time.shape[0] for edge in edges], dtype=np.int64)
        self._columns = np.array([edge.time.shape[1] for edge in edges], dtype=np.int64)
        self._at_source = _starts(self._rows)
        self._at_target = int(self._rows.sum()) + _starts(self._columns)
        self._of_time = None if self._has_memory else self._flattened(1.0, 0.0)

    def _flattened(
        self, per_nanosecond: float, per_byte: float
    ) -> tuple[Float64Array, Float64Array]:
        """All tables one after the other, as [source, target] and as [target, source]."""
        costs = [
            per_nanosecond * time + (per_byte * memory if self._has_memory else 0)
            for time, memory in self._tables
        ]
        return _joined(costs), _joined([cost.T for cost in costs])

    def bounds(self, per_nanosecond: float, per_byte: float, sweeps: int) -> Bounds:
        """Move costs forward and back so many times, and read off the bounds."""
        costs = per_nanosecond * self._time + per_byte * self._memory
        nodes = self.start.size - 1
        least = np.minimum.reduceat(costs, self.start[:-1])
        found = np.full(costs.size, -np.inf)
        held = np.zeros(int(self._rows.sum() + self._columns.sum()))
        if per_nanosecond == 0 and not self._has_memory:
            total = float(least.sum())
            each = np.repeat(total - least, np.diff(self.start))
            return Bounds(per_nanosecond, per_byte, total, each + costs)
        if per_nanosecond == 1 and self._of_time is not None:
            forward, backward = self._of_time
        else:
            forward, backward = self._flattened(per_nanosecond, per_byte)
        ahead, behind = _by_end(self._source, nodes), _by_end(self._target, nodes)
        order = np.arange(nodes)
        total = float(least.sum())
        for _ in range(sweeps):
            _pass(
                order, self.start, costs, least, found, held, self._slots, ahead[0], ahead[1],
                behind[0], self._target, self._table, forward, self._rows, self._columns,
                self._source_slots, self._target_slots, self._at_source, self._at_target,
            )  # fmt: skip
            total = _pass(
                order[::-1], self.start, costs, least, found, held, self._slots, behind[0],
                behind[1], ahead[0], self._source, self._table, backward, self._columns,
                self._rows, self._target_slots, self._source_slots, self._at_target,
                self._at_source,
            )  # fmt: skip
        np.maximum(found, total, out=found)
        return Bounds(per_nanosecond, per_byte, total, found)


def _joined(tables: Sequence[npt.NDArray[Any]]) -> Float64Array:
    flat = [np.ascontiguousarray(table, dtype=np.float64).ravel() for table in tables]
    return np.concatenate([np.zeros(0), *flat])


def _starts(counts: Int64Array, closed: bool = False) -> Int64Array:
    starts = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts if closed else starts[:-1]


def _by_end(ends: Int64Array, nodes: int) -> tuple[Int64Array, Int64Array]:
    """Per node where its edges are in a list, and that list."""
    return _starts(np.bincount(ends, minlength=nodes), closed=True), np.argsort(ends, kind="stable")


@numba.njit(cache=True, nogil=True)
def _push(table: Float64Array, given: Float64Array, out: Float64Array) -> None:
    """The most that every far slot can take while no cell becomes negative."""
    out[:] = np.inf
    for near in range(table.shape[0]):
        less = given[near]
        for far in range(table.shape[1]):
            left = table[near, far] - less
            out[far] = min(out[far], left)


@numba.njit(cache=True, nogil=True)
def _pass(
    order: Int64Array,
    start: Int64Array,
    costs: Float64Array,
    least: Float64Array,
    found: Float64Array,
    held: Float64Array,
    slots: Int64Array,
    ahead_start: Int64Array,
    ahead: Int64Array,
    behind_start: Int64Array,
    far_node: Int64Array,
    table: Int64Array,
    flat: Float64Array,
    near_count: Int64Array,
    far_count: Int64Array,
    near_slots: Int64Array,
    far_slots: Int64Array,
    near_held: Int64Array,
    far_held: Int64Array,
) -> float:
    """One pass; ``costs`` are the nodes', ``held`` is what each edge has given at its slots."""
    total = float(least.sum())
    for node in order:
        first, last = start[node], start[node + 1]
        total += _settle(costs, least, node, first, last)
        for place in range(first, last):
            found[place] = max(found[place], total - least[node] + costs[place])
        edges = ahead_start[node + 1] - ahead_start[node]
        if edges == 0:
            continue
        part = 1.0 / max(edges, behind_start[node + 1] - behind_start[node])
        own = costs[first:last].copy()
        for position in range(ahead_start[node], ahead_start[node + 1]):
            edge = ahead[position]
            rows, columns = near_count[edge], far_count[edge]
            near, far = near_slots[edge], far_slots[edge]
            share = np.full(rows, np.inf)
            for place in range(own.size):
                slot = slots[near + place]
                share[slot] = min(share[slot], own[place])
            given = held[near_held[edge] : near_held[edge] + rows]
            for slot in range(rows):
                # A slot that no configuration has gives without end: it is in no strategy.
                share[slot] = share[slot] * part if share[slot] < np.inf else 1e300
                given[slot] = given[slot] - share[slot]
            for place in range(own.size):
                costs[first + place] -= share[slots[near + place]]
            taken = np.empty(columns)
            cells = flat[table[edge] : table[edge] + rows * columns].reshape(rows, columns)
            _push(cells, given, taken)
            before = held[far_held[edge] : far_held[edge] + columns]
            there, end = start[far_node[edge]], start[far_node[edge] + 1]
            for place in range(end - there):
                slot = slots[far + place]
                costs[there + place] += taken[slot] - before[slot]
            before[:] = taken
            total += _settle(costs, least, far_node[edge], there, end)
        total += _settle(costs, least, node, first, last)
    return total


@numba.njit(cache=True, nogil=True)
def _settle(costs: Float64Array, least: Float64Array, node: int, first: int, last: int) -> float:
    """Take stock of a node's least cost; returns by how much it grew."""
    now: float = np.inf
    for place in range(first, last):
        now = min(now, costs[place])
    grown = float(now - least[node])
    least[node] = now
    return grown
