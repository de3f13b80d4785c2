"""Strategies of low weighted cost, by exact search of large neighbourhoods of a known strategy.

Bounds say which configurations are promising, but where hundreds of operators have dozens of
configurations with nearly the same cost, the best of each do not fit together. Configurations that
fit a known strategy are found at each node with its neighbours fixed. The best combination of all
these is computed exactly (bucket elimination), and is the next known strategy (large neighbourhood
search: Shaw, "Using constraint programming and local search methods to solve vehicle routing
problems", 1998).
"""

from __future__ import annotations

from copy import copy

import numba
import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds
from tensoropt.search.bounds.passes import Tables, cells_of
from tensoropt.search.effort import NEAREST, NEIGHBOURHOOD_ROUNDS, PROMISING
from tensoropt.search.flat.incidence import Incidence
from tensoropt.search.pareto.region import Weights
from tensoropt.search.scalar.bucket_elimination import Elimination
from tensoropt.search.tolerances import NEGLIGIBLE

__all__ = ["Neighbourhoods"]


_MOST_CELLS = 1 << 20
# Weighted costs are scaled to whole numbers below this.
_LARGEST = 2**60


class Neighbourhoods:
    """The neighbourhoods of one problem's strategies.

    Args:
        table: the problem in flat arrays.
    """

    def __init__(self, table: WeightedBounds) -> None:
        self._table = table
        # An order of elimination that suits many neighbourhoods.
        self._order = self._order_for(np.minimum(np.diff(table.start), 2 * PROMISING))

    def of(self, table: WeightedBounds) -> Neighbourhoods:
        """The neighbourhoods of the same problem with fewer configurations."""
        smaller = copy(self)
        smaller._table = table
        return smaller

    def cost(self, weights: Weights, strategy: Int32Array) -> float:
        """Return the weighted cost of a strategy, with tables rounded down."""
        table = self._table
        costs = weights[0] * table.time + weights[1] * table.memory
        tables = table.tables([weights])
        return float(_cost(table.ends, tables, costs, strategy.astype(np.int64)))

    def near_bounds(self, bounds: Bounds) -> Int32Array:
        """Return a strategy of low cost, from the configurations with the least bounds."""
        begin = _least_of_each(bounds.min_marginals, self._table.start)
        return self.improve(bounds.weights, begin, self.promising(bounds))

    def promising(self, bounds: Bounds) -> BoolArray:
        """bool[configurations of all nodes], some of each node with the lowest bounds."""
        return _lowest(bounds.min_marginals, self._table.start, PROMISING)

    def improve(self, weights: Weights, strategy: Int32Array, promising: BoolArray) -> Int32Array:
        """Return a strategy that no neighbour of it betters by much.

        Args:
            weights: of a nanosecond and of a byte.
            strategy: the first strategy.
            promising: bool[configurations of all nodes], part of every neighbourhood.

        Returns:
            int32[nodes].
        """
        table = self._table
        if weights[0] == 0 and not table.has_memory:  # edges cost nothing
            return _least_of_each(table.memory.astype(np.float64), table.start)
        tables, costs = table.tables([weights]), weights[0] * table.time + weights[1] * table.memory
        known = np.array(strategy, dtype=np.int64)
        least = _cost(table.ends, tables, costs, known)
        for _ in range(NEIGHBOURHOOD_ROUNDS):
            better = self._best_near(costs, tables, known, promising)
            cost = _cost(table.ends, tables, costs, better)
            enough = cost >= least * (1 - NEGLIGIBLE)
            if cost < least:
                known, least = better, cost
            if enough:
                break
        return known.astype(np.int32)

    def _best_near(
        self, costs: Float64Array, tables: Tables, known: Int64Array, promising: BoolArray
    ) -> Int64Array:
        table = self._table
        for count in NEAREST:
            marks = promising.copy()
            marks[table.start[:-1] + known] = True
            _mark_near(table.ends, tables, costs, known, count, marks)
            kept = np.flatnonzero(marks)
            first = np.searchsorted(kept, table.start)
            counts = np.diff(first)
            terms = _whole(_terms(table.ends, tables, costs, kept, first))
            chosen = self._order.least(counts, terms, _MOST_CELLS, _MOST_CELLS)
            if chosen is None:
                order = self._order_for(counts)
                chosen = order.least(counts, terms, _MOST_CELLS, _MOST_CELLS)
            if chosen is not None:
                strategy: Int64Array = kept[first[:-1] + chosen] - table.start[:-1]
                return strategy
        return known

    def _order_for(self, counts: Int64Array) -> Elimination:
        scopes: list[tuple[int, ...]] = [(node,) for node in range(counts.size)]
        ends = self._table.ends
        scopes += zip(ends.source.node.tolist(), ends.target.node.tolist(), strict=True)
        free = np.diff(self._table.start) > 1
        return Elimination.of(counts.tolist(), scopes, free.tolist())


def _whole(cells: Float64Array) -> Int64Array:
    """Scale costs to whole numbers, so that sums do not depend on their order."""
    most = float(cells[-1])
    whole: Int64Array = np.rint((_LARGEST / most if most else 1.0) * cells[:-1]).astype(np.int64)
    return whole


@numba.njit(cache=True, nogil=True)
def _least_of_each(costs: Float64Array, start: Int64Array) -> Int32Array:
    """Return the first of every node's configurations with the least cost."""
    strategy = np.empty(start.size - 1, dtype=np.int32)
    for node in range(strategy.size):
        strategy[node] = costs[start[node] : start[node + 1]].argmin()
    return strategy


@numba.njit(cache=True, nogil=True)
def _lowest(costs: Float64Array, start: Int64Array, count: int) -> BoolArray:
    """Mark the configurations of every node that cost least.

    Args:
        costs: float64[configurations of all nodes].
        start: int64[nodes + 1], where each node's configurations begin.
        count: the number for each node.
    """
    marks = np.zeros(costs.size, dtype=np.bool_)
    for node in range(start.size - 1):
        first, last = start[node], start[node + 1]
        _mark_lowest(costs[first:last], count, marks[first:last])
    return marks


@numba.njit(cache=True, nogil=True)
def _cost(ends: Incidence, tables: Tables, costs: Float64Array, known: Int64Array) -> float:
    """Return the cost of a strategy, with tables rounded down."""
    start, slots, source, target = ends
    total = 0.0
    for node in range(known.size):
        total += costs[start[node] + known[node]]
    for edge in range(source.node.size):
        row = slots[source.slots[edge] + known[source.node[edge]]]
        column = slots[target.slots[edge] + known[target.node[edge]]]
        cell = cells_of(tables, 0, edge)[row * target.sizes[edge] + column]
        total += cell / tables.scale[0, edge]
    return total


@numba.njit(cache=True, nogil=True)
def _mark_near(
    ends: Incidence,
    tables: Tables,
    costs: Float64Array,
    known: Int64Array,
    count: int,
    marks: BoolArray,
) -> None:
    """Mark configurations that are good beside all neighbours of their node, all but one, or
    one."""
    start, slots, source, target = ends
    for node in range(start.size - 1):
        first, last = start[node], start[node + 1]
        if last - first == 1:
            continue
        count_ahead = source.first[node + 1] - source.first[node]
        beside = np.empty((count_ahead + target.first[node + 1] - target.first[node], last - first))
        for place in range(len(beside)):
            is_ahead = place < count_ahead
            near, far = (source, target) if is_ahead else (target, source)
            edge = near.edges[near.first[node] + (place if is_ahead else place - count_ahead)]
            columns, scale = target.sizes[edge], tables.scale[0, edge]
            other = slots[far.slots[edge] + known[far.node[edge]]]
            step, begin = (columns, other) if is_ahead else (1, other * columns)
            cells, own = cells_of(tables, 0, edge)[begin:], slots[near.slots[edge] :]
            for number in range(last - first):
                beside[place, number] = cells[own[number] * step] / scale
        alone = costs[first:last]
        whole, less = alone.copy(), np.empty(alone.size)
        for row in beside:
            for number in range(whole.size):
                whole[number] += row[number]
        _mark_lowest(whole, count, marks[first:last])
        if len(beside) > 1:
            for row in beside:
                for number in range(whole.size):
                    less[number] = whole[number] - row[number]
                _mark_lowest(less, count, marks[first:last])
                for number in range(whole.size):
                    less[number] = alone[number] + row[number]
                _mark_lowest(less, count, marks[first:last])


@numba.njit(cache=True, nogil=True)
def _mark_lowest(costs: Float64Array, count: int, marks: BoolArray) -> None:
    """Mark the ``count`` lowest costs, the first of equal ones."""
    lowest = np.full(count, np.inf)
    places = np.zeros(count, dtype=np.int64)
    for place in range(costs.size):
        if costs[place] < lowest[count - 1]:
            at = count - 1
            while at > 0 and costs[place] < lowest[at - 1]:
                lowest[at], places[at] = lowest[at - 1], places[at - 1]
                at -= 1
            lowest[at], places[at] = costs[place], place
    for at in range(min(count, costs.size)):
        marks[places[at]] = True


@numba.njit(cache=True, nogil=True)
def _terms(
    ends: Incidence, tables: Tables, costs: Float64Array, kept: Int64Array, first: Int64Array
) -> Float64Array:
    """Return the costs of nodes and edges for kept configurations, and last a cost above every
    strategy's.

    The least cost of each node is subtracted, which changes no choice.
    """
    start, slots, source, target = ends
    size = kept.size + 1
    for edge in range(source.node.size):
        near, far = source.node[edge], target.node[edge]
        size += (first[near + 1] - first[near]) * (first[far + 1] - first[far])
    cells = np.empty(size)
    most = 0.0
    for node in range(start.size - 1):
        begin, end = first[node], first[node + 1]
        least, largest = np.inf, 0.0
        for place in range(begin, end):
            least = min(least, costs[kept[place]])
        for place in range(begin, end):
            cells[place] = costs[kept[place]] - least
            largest = max(largest, cells[place])
        most += largest
    at = kept.size
    for edge in range(source.node.size):
        near, far = source.node[edge], target.node[edge]
        largest = 0.0
        rows, columns = source.slots[edge] - start[near], target.slots[edge] - start[far]
        own, scale = cells_of(tables, 0, edge), tables.scale[0, edge]
        for row in kept[first[near] : first[near + 1]]:
            begin = slots[rows + row] * target.sizes[edge]
            for column in kept[first[far] : first[far + 1]]:
                cost = own[begin + slots[columns + column]] / scale
                cells[at] = cost
                largest = max(largest, cost)
                at += 1
        most += largest
    cells[at] = most
    return cells
