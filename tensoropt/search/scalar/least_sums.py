"""Products over (min, +) without states that cannot be least.

    out(a, b) = min over states k of left(a, k) + right(k, b)

Many states are alike: at most rows they cost more than another state, whatever the column. So a few
states, the pivots, are compared with all other states over all columns once,

    more(q, k) = max over columns b of right(q, b) - right(k, b),

and a state k that is no pivot is left out of row a where left(a, q) + more(q, k) <= left(a, k) for
some pivot q: there q costs no more than k in any column. (For the choices of one node in a pairwise
model this is Goldstein's criterion of dead-end elimination, 1994.) The result is the same to the
last unit.
"""

from __future__ import annotations

import numba
import numpy as np

from tensoropt.arrays import Float64Array, Int32Array, Int64Array

__all__ = ["least_sums", "table_units"]

# Most pivots: states that are least in most sampled rows; rows that are sampled.
_PIVOTS = 16
_SAMPLED_ROWS = 96
# Columns of a transposed table that are read at once: the numbers of a cache line.
_TOGETHER = 16
_MOST = np.int32(np.iinfo(np.int32).max)


@numba.njit(cache=True, nogil=True)
def least_sums(
    left: Int32Array, right: Int32Array, scale: float, least: float, out: Float64Array
) -> tuple[int, float, float]:
    """Write the least over some states of sums of two tables' units, as costs.

    Args:
        left: int32[rows, states], at least 0.
        right: int32[states, columns], at least 0.
        scale: units for a cost of 1.
        least: the cost of a sum of 0 units.
        out: float64[rows, columns], the costs.

    Returns:
        The number of sums compared, and the least and the highest cost.
    """
    states = left.shape[1]
    pivots = _pivots(left)
    more = _more(pivots, right)
    limit = np.empty(states, np.int32)
    some = np.empty(states + 4, np.int64)
    units = np.empty(right.shape[1], np.int32)
    compared = more.size
    low, high = _MOST, np.int32(0)
    for row in range(left.shape[0]):
        count = _possible(left[row], pivots, more, limit, some)
        compared += count
        units[:] = _MOST
        _least_of_some(left[row], some[: count + -count % 4], right, units)
        costs = out[row]
        for column in range(units.size):
            low, high = min(low, units[column]), max(high, units[column])
            costs[column] = units[column] / scale + least
    lowest, highest = float(low) / scale + least, float(high) / scale + least
    return compared * right.shape[1], lowest, highest


@numba.njit(cache=True, nogil=True)
def _pivots(left: Int32Array) -> Int64Array:
    """Return the states that are least in most rows."""
    times = np.zeros(left.shape[1], np.int32)
    for row in range(0, left.shape[0], max(1, left.shape[0] // _SAMPLED_ROWS)):
        times[np.argmin(left[row])] += 1
    order = np.argsort(-times, kind="mergesort")
    count = 0
    while count < min(_PIVOTS, order.size) and times[order[count]] > 0:
        count += 1
    return order[:count]


@numba.njit(cache=True, nogil=True)
def _more(pivots: Int64Array, right: Int32Array) -> Int32Array:
    """int32[pivots, states], the most by which a pivot costs more than a state in a column."""
    more = np.empty((pivots.size, right.shape[0]), np.int32)
    for number in range(pivots.size):
        one = right[pivots[number]]
        for state in range(right.shape[0]):
            other, most = right[state], -_MOST
            for column in range(one.size):
                most = max(most, np.int32(one[column] - other[column]))
            more[number, state] = most
        more[number][pivots] = _MOST // 2  # one of them is left out for none
    return more


@numba.njit(cache=True, nogil=True)
def _possible(
    left: Int32Array, pivots: Int64Array, more: Int32Array, limit: Int32Array, some: Int64Array
) -> int:
    """Write the states that may be least in a row to ``some``; return their number.

    The last state is repeated up to a multiple of four.
    """
    limit[:] = _MOST
    for number in range(pivots.size):
        own, beyond = left[pivots[number]], more[number]
        for state in range(limit.size):
            limit[state] = min(limit[state], np.int32(own + beyond[state]))
    count = 0
    for state in range(limit.size):
        some[count] = state
        count += left[state] < limit[state]
    for place in range(count, count + -count % 4):
        some[place] = some[count - 1]
    return count


@numba.njit(cache=True, nogil=True)
def _least_of_some(left: Int32Array, some: Int64Array, right: Int32Array, out: Int32Array) -> None:
    """Write the least of every column over some states, four at a time."""
    for place in range(0, some.size, 4):
        first, second, third, fourth = some[place : place + 4]
        a, b, c, d = left[first], left[second], left[third], left[fourth]
        one, two, three, four = right[first], right[second], right[third], right[fourth]
        for column in range(out.size):
            # Without the casts, compiled code adds to 64 bits, which takes twice as long.
            low = min(np.int32(one[column] + a), np.int32(two[column] + b))
            high = min(np.int32(three[column] + c), np.int32(four[column] + d))
            out[column] = min(out[column], min(low, high))


@numba.njit(cache=True, nogil=True)
def table_units(
    table: Float64Array,
    is_across: bool,
    rows: Int64Array,
    columns: Int64Array,
    more: Float64Array,
    scale: float,
) -> Int32Array:
    """Return int32[rows, columns], some of a table's costs in whole units, rounded down.

    Args:
        table: float64[any, any].
        is_across: whether the table is transposed.
        rows, columns: the numbers of its rows and columns.
        more: float64[columns], added so that no cost is below 0.
        scale: units for a cost of 1.
    """
    units_table = np.empty((rows.size, columns.size), np.int32)
    if not is_across:
        for row in range(rows.size):
            costs, units = table[rows[row]], units_table[row]
            for column in range(columns.size):
                costs_more = costs[columns[column]] + more[column]
                units[column] = np.int32(costs_more * scale)
        return units_table
    for begin in range(0, columns.size, _TOGETHER):
        end = min(columns.size, begin + _TOGETHER)
        for row in range(rows.size):
            for column in range(begin, end):
                costs_more = table[columns[column], rows[row]] + more[column]
                units_table[row, column] = np.int32(costs_more * scale)
    return units_table
