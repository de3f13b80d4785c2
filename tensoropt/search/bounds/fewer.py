"""A graph in flat arrays with fewer configurations: without the slots that none of them has."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from tensoropt.arrays import BoolArray, Int32Array, Int64Array, offsets_of
from tensoropt.search.bounds.incidence import Incidence, Side
from tensoropt.search.bounds.passes import Tables, cells_of

__all__ = ["Fewer", "fewer_configurations"]


class Fewer(NamedTuple):
    """A graph with fewer configurations, for one pair of weights.

    Attributes:
        ends: of its edges.
        tables: of its edges.
        messages: int64[slots of all edges], which these were before.
    """

    ends: Incidence
    tables: Tables
    messages: Int64Array


def fewer_configurations(ends: Incidence, tables: Tables, alive: BoolArray) -> Fewer:
    """A graph with some of its configurations.

    Args:
        ends: of all edges.
        tables: of all edges, for one pair of weights.
        alive: bool[configurations of all nodes], of each node at least one.
    """
    start = offsets_of(np.add.reduceat(alive.astype(np.int64), ends.start[:-1]))
    counts = np.diff(start)
    sides = [ends.source, ends.target]
    places = offsets_of(np.concatenate([counts[side.node] for side in sides]))
    slots = np.empty(places[-1], dtype=np.int64)
    messages = np.empty(sum(int(side.sizes.sum()) for side in sides), dtype=np.int64)
    edges = ends.source.node.size
    found, made = [], 0
    for side, own in zip(sides, (places[:edges], places[edges:-1]), strict=True):
        first = _renumber(side, ends, alive, own, slots, messages[made:])
        found.append(side._replace(slots=own, messages=made + first[:-1], sizes=np.diff(first)))
        made += int(first[-1])
    fewer = Incidence(start, slots, *found)
    messages = messages[:made].copy()
    first = offsets_of(found[0].sizes * found[1].sizes)
    cells = np.empty(first[-1], dtype=np.int32)
    _pick(ends, tables, fewer, messages, first, cells)
    everywhere = np.ones(edges, dtype=np.bool_)
    own_tables = Tables(cells[:0], cells, everywhere, first[None, :-1], tables.scale)
    return Fewer(fewer, own_tables, messages)


@numba.njit(cache=True, nogil=True)
def _renumber(
    side: Side,
    ends: Incidence,
    alive: BoolArray,
    places: Int64Array,
    slots: Int64Array,
    messages: Int64Array,
) -> Int64Array:
    """Number the slots at one end of every edge that configurations still have.

    Args:
        side: that end.
        ends: of all edges.
        alive: bool[configurations of all nodes].
        places: int64[edges], where to write the slots of a node's configurations.
        slots: int64[any], there.
        messages: int64[any], what the messages to the slots that are left were before.

    Returns:
        int64[edges + 1], how many slots earlier edges have.
    """
    first = np.zeros(side.node.size + 1, dtype=np.int64)
    made = 0
    for edge in range(side.node.size):
        begin, end = ends.start[side.node[edge]], ends.start[side.node[edge] + 1]
        old = ends.slots[side.slots[edge] : side.slots[edge] + end - begin]
        number = np.full(side.sizes[edge], -1, dtype=np.int64)
        for place in range(end - begin):
            if alive[begin + place]:
                number[old[place]] = 0
        count = 0
        for slot in range(number.size):
            if number[slot] == 0:
                number[slot] = count
                messages[made + count] = side.messages[edge] + slot
                count += 1
        at = places[edge]
        for place in range(end - begin):
            if alive[begin + place]:
                slots[at] = number[old[place]]
                at += 1
        made += count
        first[edge + 1] = made
    return first


@numba.njit(cache=True, nogil=True)
def _pick(
    ends: Incidence,
    tables: Tables,
    fewer: Incidence,
    messages: Int64Array,
    first: Int64Array,
    cells: Int32Array,
) -> None:
    """Write the cells of the slots that are left."""
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
