"""Compiled sweeps of message passing over the edges of a problem, for many weights at once.

Reading every cell of every edge's table for every weight takes nearly all the time. So a table is
read once for all weights, four rows at a time. Its numbers are integers of 32 bits. They count
units of about the 2**30th part of the table's largest cost, so that rounding makes no difference.
The same table serves both directions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from tensoropt.arrays import BoolArray, Float64Array, Int32Array, Int64Array, offsets_of
from tensoropt.search.flat.incidence import Incidence

__all__ = [
    "ENDLESS",
    "MOST_UNITS",
    "Tables",
    "cells_of",
    "fewer_tables",
    "least_of_columns",
    "least_of_rows",
    "pass_cost",
    "receive",
    "sweep",
    "sweep_additions",
    "to_units",
    "whole_units",
]


# Columns in a pass: four rows of them and the output fit the first cache.
_COLUMNS = 512
ENDLESS = 1e300
"""The message at a slot that no configuration has, so that no strategy uses the slot."""
MOST_UNITS = 2**30
"""Every number of a table is below this number of units, so that the sum of two fits 32 bits."""


class Tables(NamedTuple):
    """The costs of edges for some weights, rounded down to whole units, so that bounds hold.

    Attributes:
        flat: int32[cells of all distinct tables that the weights share], [source, target] of each.
        own: int32[cells of all other tables], weight by weight.
        is_own: bool[edges], whose tables are in ``own``.
        first: int64[weights, edges], where each edge's table begins.
        scale: float64[weights, edges], units for a weighted cost of 1: a power of two.
    """

    flat: Int32Array
    own: Int32Array
    is_own: BoolArray
    first: Int64Array
    scale: Float64Array


@numba.njit(cache=True, nogil=True)
def cells_of(tables: Tables, weight: int, edge: int) -> Int32Array:
    """All cells from the first cell of an edge's table on."""
    first = tables.first[weight, edge]
    return tables.own[first:] if tables.is_own[edge] else tables.flat[first:]


def fewer_tables(ends: Incidence, tables: Tables, fewer: Incidence, messages: Int64Array) -> Tables:
    """The tables of edges with fewer slots, for one pair of weights.

    Args:
        ends, tables: of all edges.
        fewer: the ends of the same edges with some of the slots.
        messages: int64[slots of all edges in ``fewer``], the number of each in ``ends``.
    """
    first = offsets_of(fewer.source.sizes * fewer.target.sizes)
    cells = np.empty(first[-1], dtype=np.int32)
    _pick(ends, tables, fewer, messages, first, cells)
    everywhere = np.ones(first.size - 1, dtype=np.bool_)
    return Tables(cells[:0], cells, everywhere, first[None, :-1], tables.scale)


@numba.njit(cache=True, nogil=True)
def _pick(
    ends: Incidence,
    tables: Tables,
    fewer: Incidence,
    messages: Int64Array,
    first: Int64Array,
    cells: Int32Array,
) -> None:
    """Write the cells of the slots in ``fewer``."""
    for edge in range(ends.source.node.size):
        rows, columns = fewer.source.sizes[edge], fewer.target.sizes[edge]
        above = messages[fewer.source.messages[edge] :]
        beside = messages[fewer.target.messages[edge] :]
        old, width = cells_of(tables, 0, edge), ends.target.sizes[edge]
        at = first[edge]
        for row in range(rows):
            begin = (above[row] - ends.source.messages[edge]) * width
            begin -= ends.target.messages[edge]
            for column in range(columns):
                cells[at] = old[begin + beside[column]]
                at += 1


@numba.njit(cache=True, nogil=True)
def whole_units(largest: float) -> float:
    """The largest power of two that keeps a table below `MOST_UNITS`, by its largest number."""
    units: float = 2.0 ** np.floor(np.log2((MOST_UNITS - 1) / (largest if largest > 0 else 1.0)))
    return units


@numba.njit(cache=True, nogil=True)
def to_units(costs: npt.NDArray[Any], scale: float, out: Int32Array) -> None:
    """Write costs in whole units, rounded down."""
    for place in range(costs.size):
        out[place] = np.int32(np.floor(costs[place] * scale))


@numba.njit(cache=True, nogil=True)
def least_of_columns(table: Int32Array, near: Int32Array, out: Int32Array) -> None:
    """Write the least of every column after adding ``near`` to the rows, for each row of
    ``near``."""
    rows, columns = table.shape
    whole = rows - rows % 4
    for begin in range(0, columns, _COLUMNS):
        end = min(columns, begin + _COLUMNS)
        for row in range(0, whole, 4):
            one, two = table[row, begin:end], table[row + 1, begin:end]
            three, four = table[row + 2, begin:end], table[row + 3, begin:end]
            for weight in range(near.shape[0]):
                a, b = near[weight, row], near[weight, row + 1]
                c, d = near[weight, row + 2], near[weight, row + 3]
                best = out[weight, begin:end]
                for place in range(end - begin):
                    # Without the casts, compiled code adds to 64 bits, which takes twice as long.
                    first = min(np.int32(one[place] + a), np.int32(two[place] + b))
                    last = min(np.int32(three[place] + c), np.int32(four[place] + d))
                    best[place] = min(best[place], min(first, last))
        for row in range(whole, rows):
            one = table[row, begin:end]
            for weight in range(near.shape[0]):
                a = near[weight, row]
                best = out[weight, begin:end]
                for place in range(end - begin):
                    best[place] = min(best[place], np.int32(one[place] + a))


@numba.njit(cache=True, nogil=True)
def least_of_rows(table: Int32Array, near: Int32Array, out: Int32Array) -> None:
    """Write the least of every row after adding ``near`` to the columns, for each row of
    ``near``."""
    rows, columns = table.shape
    whole = rows - rows % 4
    for row in range(0, whole, 4):
        one, two, three, four = table[row], table[row + 1], table[row + 2], table[row + 3]
        for weight in range(near.shape[0]):
            more = near[weight]
            a, b = out[weight, row], out[weight, row + 1]
            c, d = out[weight, row + 2], out[weight, row + 3]
            for place in range(columns):
                add = more[place]
                a = min(a, np.int32(one[place] + add))
                b = min(b, np.int32(two[place] + add))
                c = min(c, np.int32(three[place] + add))
                d = min(d, np.int32(four[place] + add))
            out[weight, row], out[weight, row + 1] = a, b
            out[weight, row + 2], out[weight, row + 3] = c, d
    for row in range(whole, rows):
        one = table[row]
        for weight in range(near.shape[0]):
            a = out[weight, row]
            more = near[weight]
            for place in range(columns):
                a = min(a, np.int32(one[place] + more[place]))
            out[weight, row] = a


@numba.njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def _settle(costs: Float64Array, least: Float64Array, node: int) -> float:
    """Update a node's least cost; return its increase."""
    now: float = np.inf
    for place in range(costs.size):
        now = min(now, costs[place])
    grown = float(now - least[node])
    least[node] = now
    return grown


@numba.njit(cache=True, nogil=True)
def _least_at_slots(costs: Float64Array, slots: Int64Array, count: int) -> Float64Array:
    """Return the least cost of configurations with each slot; infinite where none has it."""
    least = np.full(count, np.inf)
    for place in range(costs.size):
        slot = slots[place]
        least[slot] = min(least[slot], costs[place])
    return least


@numba.njit(cache=True, nogil=True)
def _give(
    own: Float64Array,
    slots: Int64Array,
    message: Float64Array,
    costs: Float64Array,
    part: float,
    scale: float,
    near: Int32Array,
) -> float:
    """Pass a part of a node's cost at its slots to an edge, in whole units.

    ``near`` becomes the cost that the edge then holds at these slots, above the least of it, which
    is returned. A number that exceeds the least by more than the largest number of a table makes no
    difference to the message to the far end.
    """
    share = _least_at_slots(own, slots, message.size)
    lowest = np.inf
    for slot in range(message.size):
        if share[slot] < np.inf:
            held = np.floor((share[slot] * part - message[slot]) * scale) / scale
            share[slot] = held + message[slot]
            message[slot] = -held
            lowest = min(lowest, held)
        else:
            message[slot] = -ENDLESS
    for place in range(own.size):
        costs[place] -= share[slots[place]]
    for slot in range(message.size):
        near[slot] = np.int32(min((-message[slot] - lowest) * scale, MOST_UNITS))
    return lowest


@numba.njit(cache=True, nogil=True)
def _take(
    out: Int32Array,
    lowest: float,
    scale: float,
    slots: Int64Array,
    message: Float64Array,
    costs: Float64Array,
) -> None:
    """Pass as much as an edge can to a node, in place of its earlier message."""
    more = np.empty(message.size)
    for slot in range(message.size):
        now = out[slot] / scale + lowest
        more[slot] = now - message[slot]
        message[slot] = now
    for place in range(costs.size):
        costs[place] += more[slots[place]]


@numba.njit(cache=True, nogil=True)
def pass_cost(
    edge: int,
    is_ahead: bool,
    part: float,
    ends: Incidence,
    tables: Tables,
    own: Float64Array,
    left: Float64Array,
    costs: Float64Array,
    messages: Float64Array,
) -> None:
    """Pass a part of a node's cost to an edge, and as much as the edge can to its other end.

    Args:
        edge: its number.
        is_ahead: whether the direction is from source to target.
        part: the share of the node's cost.
        ends, tables: of all edges.
        own: float64[weights, K], the node's costs.
        left: float64[weights, K], the array from which the passed cost is subtracted.
        costs: float64[weights, configurations] of all nodes, to which the edge adds.
        messages: float64[weights, slots of all edges], from edges to nodes.
    """
    weights = costs.shape[0]
    near, far = (ends.source, ends.target) if is_ahead else (ends.target, ends.source)
    here, there = near.sizes[edge], far.sizes[edge]
    numbers = ends.slots[near.slots[edge] : near.slots[edge] + own.shape[1]]
    at = near.messages[edge]
    more, lowest = np.empty((weights, here), np.int32), np.empty(weights)
    for weight in range(weights):
        message = messages[weight, at : at + here]
        lowest[weight] = _give(
            own[weight],
            numbers,
            message,
            left[weight],
            part,
            tables.scale[weight, edge],
            more[weight],
        )
    out = np.full((weights, there), 2 * MOST_UNITS - 1, np.int32)
    together = 1 if tables.is_own[edge] else weights
    for begin in range(0, weights, together):
        cells = cells_of(tables, begin, edge)[: here * there]
        some = slice(begin, begin + together)
        if is_ahead:
            least_of_columns(cells.reshape(here, there), more[some], out[some])
        else:
            least_of_rows(cells.reshape(there, here), more[some], out[some])
    first, last = ends.start[far.node[edge]], ends.start[far.node[edge] + 1]
    numbers = ends.slots[far.slots[edge] : far.slots[edge] + last - first]
    at = far.messages[edge]
    for weight in range(weights):
        message, scale = messages[weight, at : at + there], tables.scale[weight, edge]
        _take(out[weight], lowest[weight], scale, numbers, message, costs[weight, first:last])


@numba.njit(cache=True, nogil=True)
def sweep(
    order: Int64Array,
    ends: Incidence,
    tables: Tables,
    is_ahead: bool,
    costs: Float64Array,
    least: Float64Array,
    best: Float64Array,
    messages: Float64Array,
) -> None:
    """Do one sweep in the order of nodes, over edges from their sources, or from their targets.

    Args:
        order: int64[any], nodes.
        ends, tables: of all edges.
        is_ahead: whether messages are passed from sources to targets.
        costs: float64[weights, configurations], all nodes' costs with the messages received.
        least: float64[weights, nodes], the least of ``costs``.
        best: float64[weights, configurations], the best bound so far.
        messages: float64[weights, slots of all edges], from edges to nodes.
    """
    weights, start = costs.shape[0], ends.start
    near, far = (ends.source, ends.target) if is_ahead else (ends.target, ends.source)
    total = np.zeros(weights)
    for weight in range(weights):
        for node in range(least.shape[1]):
            total[weight] += least[weight, node]
    for node in order:
        first, last = start[node], start[node + 1]
        own = costs[:, first:last].copy()
        for weight in range(weights):
            total[weight] += _settle(own[weight], least[weight], node)
            others = total[weight] - least[weight, node]
            for place in range(first, last):
                best[weight, place] = max(best[weight, place], others + costs[weight, place])
        edges = near.first[node + 1] - near.first[node]
        if edges == 0:
            continue
        back = far.first[node + 1] - far.first[node]
        part = 1.0 / max(edges, back)
        for position in range(near.first[node], near.first[node + 1]):
            edge = near.edges[position]
            to = far.node[edge]
            left = costs[:, first:last]
            pass_cost(edge, is_ahead, part, ends, tables, own, left, costs, messages)
            for weight in range(weights):
                theirs = costs[weight, start[to] : start[to + 1]]
                total[weight] += _settle(theirs, least[weight], to)
        for weight in range(weights):
            total[weight] += _settle(costs[weight, first:last], least[weight], node)


@numba.njit(cache=True, nogil=True)
def receive(costs: Float64Array, messages: Float64Array, ends: Incidence) -> None:
    """Add the messages at the slots of every configuration to its cost, for every weight."""
    for side in (ends.source, ends.target):
        for edge in range(side.node.size):
            first, last = ends.start[side.node[edge]], ends.start[side.node[edge] + 1]
            numbers, at = ends.slots[side.slots[edge] :], side.messages[edge]
            for weight in range(costs.shape[0]):
                for place in range(last - first):
                    costs[weight, first + place] += messages[weight, at + numbers[place]]


def sweep_additions(sweeps: int, cells: int, weights: int = 1) -> float:
    """The additions of sweeps over all edges, forward and back."""
    return 2.0 * sweeps * cells * weights
