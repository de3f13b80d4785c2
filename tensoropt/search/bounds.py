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

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from tensoropt.search.problem import Problem

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
        nodes = len(problem.nodes)
        self._ahead, self._behind = _by_end(self._source, nodes), _by_end(self._target, nodes)

    def _flattened(
        self, per_nanosecond: float, per_byte: float
    ) -> tuple[Float64Array, Float64Array]:
        """All tables one after the other, as [source, target] and as [target, source]."""
        costs = [
            per_nanosecond * time + (per_byte * memory if self._has_memory else 0)
            for time, memory in self._tables
        ]
        return _joined(costs), _joined([cost.T for cost in costs])

    def bounds(
        self, per_nanosecond: float, per_byte: float, sweeps: int, given: Float64Array | None = None
    ) -> Bounds:
        """Move costs forward and back so many times, and read off the bounds.

        Args:
            given: where to begin, for the same tables: as of other bounds. Only where edges take
                no memory and a nanosecond weighs as much there.
        """
        nodes = self.start.size - 1
        if per_nanosecond == 0 and not self._has_memory:
            costs = per_byte * self._memory
            least = np.minimum.reduceat(costs, self.start[:-1])
            total = float(least.sum())
            each = np.repeat(total - least, np.diff(self.start))
            return Bounds(per_nanosecond, per_byte, total, each + costs, np.zeros(self._places))
        held = np.zeros(self._places) if given is None or self._has_memory else given.copy()
        costs = self._reduced(per_nanosecond, per_byte, held)
        least = np.minimum.reduceat(costs, self.start[:-1])
        found = np.full(costs.size, -np.inf)
        forward, backward = self._tables_of(per_nanosecond, per_byte)
        order = np.arange(nodes)
        total = float(least.sum())
        for _ in range(sweeps):
            self._forward(order, costs, least, found, held, forward)
            total = self._backward(order, costs, least, found, held, backward, greedy=False)
        np.maximum(found, total, out=found)
        return Bounds(per_nanosecond, per_byte, total, found, held)

    def collected(self, bounds: Bounds) -> Float64Array:
        """What edges have given when all has moved back once more.

        Each node then gives all that it can to those before it: on a tree the costs of what
        follows are known exactly at every edge.
        """
        held = bounds.given.copy()
        costs = self._reduced(bounds.per_nanosecond, bounds.per_byte, held)
        least = np.minimum.reduceat(costs, self.start[:-1])
        if bounds.per_nanosecond or self._has_memory:
            found = np.full(costs.size, -np.inf)
            backward = self._tables_of(bounds.per_nanosecond, bounds.per_byte)[1]
            order = np.arange(least.size)
            self._backward(order, costs, least, found, held, backward, greedy=True)
        return held

    @property
    def ends(self) -> tuple[Int64Array, Int64Array]:
        """Where each edge's source slots and its target slots begin in what edges have given."""
        return self._at_source, self._at_target

    @property
    def _places(self) -> int:
        return int(self._rows.sum() + self._columns.sum())

    def _tables_of(
        self, per_nanosecond: float, per_byte: float
    ) -> tuple[Float64Array, Float64Array]:
        if per_nanosecond == 1 and self._of_time is not None:
            return self._of_time
        return self._flattened(per_nanosecond, per_byte)

    def _reduced(self, per_nanosecond: float, per_byte: float, held: Float64Array) -> Float64Array:
        """Costs of configurations, with what edges have given."""
        costs = per_nanosecond * self._time + per_byte * self._memory
        if held.any():
            _receive(
                costs, self.start, held, self._slots, self._source, self._target,
                self._source_slots, self._target_slots, self._at_source, self._at_target,
            )  # fmt: skip
        return costs

    def _forward(
        self,
        order: Int64Array,
        costs: Float64Array,
        least: Float64Array,
        found: Float64Array,
        held: Float64Array,
        tables: Float64Array,
    ) -> float:
        total: float = _pass(
            order, self.start, costs, least, found, held, self._slots, self._ahead[0],
            self._ahead[1], self._behind[0], self._target, self._table, tables, self._rows,
            self._columns, self._source_slots, self._target_slots, self._at_source,
            self._at_target, False,
        )  # fmt: skip
        return total

    def _backward(
        self,
        order: Int64Array,
        costs: Float64Array,
        least: Float64Array,
        found: Float64Array,
        held: Float64Array,
        tables: Float64Array,
        *,
        greedy: bool,
    ) -> float:
        total: float = _pass(
            order[::-1], self.start, costs, least, found, held, self._slots, self._behind[0],
            self._behind[1], self._ahead[0], self._source, self._table, tables, self._columns,
            self._rows, self._target_slots, self._source_slots, self._at_target,
            self._at_source, greedy,
        )  # fmt: skip
        return total


def warm_bounds(
    table: WeightedBounds,
    weights: Sequence[tuple[float, float]],
    sweeps: int,
    earlier: Sequence[Bounds] = (),
) -> list[Bounds]:
    """The bounds of all weights, on as many threads as there are cores; compiled code runs free.

    Each begins where that of the nearest weight ended before.
    """

    def find(pair: tuple[float, float]) -> Bounds:
        near = [each for each in earlier if each.per_nanosecond == pair[0] > 0]
        if not near:
            return table.bounds(*pair, sweeps)
        ratios = [abs(np.log((each.per_byte + _TINY) / (pair[1] + _TINY))) for each in near]
        return table.bounds(*pair, sweeps, near[int(np.argmin(ratios))].given)

    with ThreadPoolExecutor(max_workers=min(len(weights), os.cpu_count() or 1)) as pool:
        return list(pool.map(find, weights))


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
    greedy: bool,
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
        others = behind_start[node + 1] - behind_start[node]
        part = 1.0 / (edges if greedy else max(edges, others))
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


@numba.njit(cache=True, nogil=True)
def _receive(
    costs: Float64Array,
    start: Int64Array,
    held: Float64Array,
    slots: Int64Array,
    source: Int64Array,
    target: Int64Array,
    source_slots: Int64Array,
    target_slots: Int64Array,
    at_source: Int64Array,
    at_target: Int64Array,
) -> None:
    """Add to every configuration's cost what edges have given at its slots."""
    for edge in range(source.size):
        first, last = start[source[edge]], start[source[edge] + 1]
        for place in range(last - first):
            costs[first + place] += held[at_source[edge] + slots[source_slots[edge] + place]]
        first, last = start[target[edge]], start[target[edge] + 1]
        for place in range(last - first):
            costs[first + place] += held[at_target[edge] + slots[target_slots[edge] + place]]
