"""Compiled sweeps of message passing over a problem's edges, for many weights at a time.

What costs time is to read every cell of every edge's table for every weight. So a table is read
once for all weights, four rows at a time. Its numbers have 32 bits: they count units that
are small enough to make no difference, some 2**30 to its largest number. The same table serves both
directions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Float64Array, Int32Array, Int64Array
from tensoropt.search.bounds.incidence import Side

__all__ = [
    "ENDLESS",
    "MOST_UNITS",
    "Tables",
    "give",
    "least_at_slots",
    "least_of_columns",
    "least_of_rows",
    "receive",
    "sweep",
    "take",
    "to_units",
    "whole_units",
]


# Columns at a time: four rows of them and what is found stay in the first cache.
_COLUMNS = 512
ENDLESS = 1e300
"""The message at a slot that no configuration has: it is in no strategy."""
MOST_UNITS = 2**30
"""Units in a table are fewer, so that the sum of two numbers has 32 bits."""


class Tables(NamedTuple):
    """What edges cost, rounded down to whole units, so that bounds hold for the costs themselves.

    Attributes:
        flat: int32[cells of all different tables], [source, target] of each.
        first: int64[edges], where each edge's table begins.
        scale: float64[edges], units to a weighted cost of 1: a power of two.
    """

    flat: Int32Array
    first: Int64Array
    scale: Float64Array


def whole_units(largest: float) -> float:
    """The largest power of two by which a table may be multiplied whose largest number is given."""
    return float(2.0 ** np.floor(np.log2((MOST_UNITS - 1) / (largest or 1.0))))


@numba.njit(cache=True, nogil=True)
def to_units(costs: npt.NDArray[Any], scale: float, out: Int32Array) -> None:
    """Costs in whole units, rounded down."""
    for place in range(costs.size):
        out[place] = np.int32(np.floor(costs[place] * scale))


@numba.njit(cache=True, nogil=True)
def least_of_columns(table: Int32Array, near: Int32Array, out: Int32Array) -> None:
    """The least of every column, ``near`` added to the rows; for each of some ``near``."""
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
                    # Compiled code adds two of 32 bits to one of 64, which takes twice as long.
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
    """The least of every row, ``near`` added to the columns; for each of some ``near``."""
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
    """Update a node's least cost; returns by how much it grew."""
    now: float = np.inf
    for place in range(costs.size):
        now = min(now, costs[place])
    grown = float(now - least[node])
    least[node] = now
    return grown


@numba.njit(cache=True, nogil=True)
def least_at_slots(costs: Float64Array, slots: Int64Array, count: int) -> Float64Array:
    """The least cost of configurations with each of so many slots; inf where none has it."""
    least = np.full(count, np.inf)
    for place in range(costs.size):
        slot = slots[place]
        least[slot] = min(least[slot], costs[place])
    return least


@numba.njit(cache=True, nogil=True)
def give(
    own: Float64Array,
    slots: Int64Array,
    message: Float64Array,
    costs: Float64Array,
    part: float,
    scale: float,
    near: Int32Array,
) -> float:
    """A node passes a part of its cost at its slots to an edge, in whole units.

    ``near`` becomes what the edge holds at these slots then, above the least of it, which is
    returned. What is more than the largest number of a table above it makes no difference to the
    message to the far end.
    """
    share = least_at_slots(own, slots, message.size)
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
def take(
    out: Int32Array,
    lowest: float,
    scale: float,
    slots: Int64Array,
    message: Float64Array,
    costs: Float64Array,
) -> None:
    """An edge's new message to a node: all that it can pass, in place of its message before."""
    more = np.empty(message.size)
    for slot in range(message.size):
        now = out[slot] / scale + lowest
        more[slot] = now - message[slot]
        message[slot] = now
    for place in range(costs.size):
        costs[place] += more[slots[place]]


@numba.njit(cache=True, nogil=True)
def sweep(
    order: Int64Array,
    start: Int64Array,
    slots: Int64Array,
    near: Side,
    far: Side,
    tables: Tables,
    is_ahead: bool,
    is_greedy: bool,
    costs: Float64Array,
    least: Float64Array,
    found: Float64Array,
    messages: Float64Array,
) -> Float64Array:
    """One sweep in the order of nodes, over edges from ``near`` to ``far``.

    Args:
        order: int64[any], nodes.
        start: int64[nodes + 1], where each node's configurations are.
        slots: of all edges' ends.
        near, far: the ends that messages are passed from, and to.
        tables: of all edges.
        is_ahead: whether ``near`` is the source.
        is_greedy: whether nodes pass on all, and keep nothing for the way back.
        costs, found: float64[weights, configurations], of all nodes' configurations with the
            messages that they got, and the best bound known.
        least: float64[weights, nodes], of ``costs``.
        messages: float64[weights, slots of all edges], from edges to nodes.

    Returns:
        float64[weights], the bound of every strategy.
    """
    weights = costs.shape[0]
    total, lowest = np.zeros(weights), np.empty(weights)
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
                found[weight, place] = max(found[weight, place], others + costs[weight, place])
        edges = near.first[node + 1] - near.first[node]
        if edges == 0:
            continue
        back = far.first[node + 1] - far.first[node]
        part = 1.0 / (edges if is_greedy else max(edges, back))
        for position in range(near.first[node], near.first[node + 1]):
            edge = near.edges[position]
            here, there = near.sizes[edge], far.sizes[edge]
            scale = tables.scale[edge]
            to, end = start[far.node[edge]], start[far.node[edge] + 1]
            numbers = slots[near.slots[edge] : near.slots[edge] + last - first]
            at = near.messages[edge]
            more = np.empty((weights, here), np.int32)
            for weight in range(weights):
                lowest[weight] = give(
                    own[weight], numbers, messages[weight, at : at + here],
                    costs[weight, first:last], part, scale, more[weight],
                )  # fmt: skip
            out = np.full((weights, there), 2 * MOST_UNITS - 1, np.int32)
            cells = tables.flat[tables.first[edge] : tables.first[edge] + here * there]
            if is_ahead:
                least_of_columns(cells.reshape(here, there), more, out)
            else:
                least_of_rows(cells.reshape(there, here), more, out)
            numbers = slots[far.slots[edge] : far.slots[edge] + end - to]
            at = far.messages[edge]
            for weight in range(weights):
                theirs = costs[weight, to:end]
                take(
                    out[weight], lowest[weight], scale, numbers, messages[weight, at : at + there],
                    theirs,
                )  # fmt: skip
                total[weight] += _settle(theirs, least[weight], far.node[edge])
        for weight in range(weights):
            total[weight] += _settle(costs[weight, first:last], least[weight], node)
    return total


@numba.njit(cache=True, nogil=True)
def receive(
    costs: Float64Array, start: Int64Array, messages: Float64Array, slots: Int64Array, side: Side
) -> None:
    """Add to every configuration's cost the messages at its slots, for every weight."""
    for edge in range(side.node.size):
        first, last = start[side.node[edge]], start[side.node[edge] + 1]
        numbers, at = slots[side.slots[edge] :], side.messages[edge]
        for weight in range(costs.shape[0]):
            for place in range(last - first):
                costs[weight, first + place] += messages[weight, at + numbers[place]]
