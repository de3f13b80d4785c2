"""Products over (min, +) that leave out what cannot be least.

    out(a, b) = min over states k of left(a, k) + right(k, b)

States are alike: most of them cost more at a row than another state does whatever the column is. So
a few states, the pivots, are compared with all others over all columns once,

    more(q, k) = max over columns b of right(q, b) - right(k, b),

and k, if it is no pivot, is left out of row a where left(a, q) + more(q, k) <= left(a, k) for some
pivot q: there q costs no more than k in any column. (For the choices of one node in a pairwise
model that is Goldstein's criterion of dead-end elimination, 1994.) The result is the same, to the
last unit.
"""

from __future__ import annotations

import numba
import numpy as np

from tensoropt.arrays import Float64Array, Int32Array, Int64Array

__all__ = ["least_sums", "table_units"]

# At most so many pivots: the states that are least themselves in most of some rows.
_PIVOTS = 16
_SAMPLED_ROWS = 96
# Columns of a table that become rows are read together, as many as numbers in a line of a cache.
_TOGETHER = 16
_MOST = np.int32(np.iinfo(np.int32).max)


@numba.njit(cache=True, nogil=True)
def least_sums(
    left: Int32Array, right: Int32Array, scale: float, least: float, out: Float64Array
) -> tuple[int, float, float]:
    """The least over some states of sums of two tables' units, as costs.

    Args:
        left: int32[rows, states], at least 0.
        right: int32[states, columns], at least 0.
        scale: units to a cost of 1.
        least: what a sum of 0 units costs.
        out: float64[rows, columns], where the costs go.

    Returns:
        How many sums were compared, and the least and the most of the costs.
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
    """The states that cost least in most rows."""
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
    """int32[pivots, states], how much more each pivot costs than a state in any column."""
    found = np.empty((pivots.size, right.shape[0]), np.int32)
    for number in range(pivots.size):
        one = right[pivots[number]]
        for state in range(right.shape[0]):
            other, most = right[state], -_MOST
            for column in range(one.size):
                most = max(most, np.int32(one[column] - other[column]))
            found[number, state] = most
        found[number][pivots] = _MOST // 2  # one of them is left out for none
    return found


@numba.njit(cache=True, nogil=True)
def _possible(
    left: Int32Array, pivots: Int64Array, more: Int32Array, limit: Int32Array, some: Int64Array
) -> int:
    """The states that may be least in a row, into ``some``; returns how many. The last is written
    again up to a multiple of four."""
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
    """The least of every column over some states, in fours."""
    for place in range(0, some.size, 4):
        first, second, third, fourth = some[place : place + 4]
        a, b, c, d = left[first], left[second], left[third], left[fourth]
        one, two, three, four = right[first], right[second], right[third], right[fourth]
        for column in range(out.size):
            # Compiled code adds two of 32 bits to one of 64, which takes twice as long.
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
    """int32[rows, columns], some of a table's costs in whole units, rounded down.

    Args:
        table: float64[any, any].
        is_across: whether its columns are rows here.
        rows, columns: which of its.
        more: float64[columns], to be added; with it no cost is below 0.
        scale: units to a cost of 1.
    """
    found = np.empty((rows.size, columns.size), np.int32)
    if not is_across:
        for row in range(rows.size):
            costs, units = table[rows[row]], found[row]
            for column in range(columns.size):
                costs_more = costs[columns[column]] + more[column]
                units[column] = np.int32(costs_more * scale)
        return found
    for begin in range(0, columns.size, _TOGETHER):
        end = min(columns.size, begin + _TOGETHER)
        for row in range(rows.size):
            for column in range(begin, end):
                costs_more = table[columns[column], rows[row]] + more[column]
                found[row, column] = np.int32(costs_more * scale)
    return found
