"""The ends of edges with fewer configurations, without the slots that none of them has."""

from __future__ import annotations

import numba
import numpy as np

from tensoropt.arrays import BoolArray, Int64Array, offsets_of
from tensoropt.search.flat.incidence import Incidence, Side

__all__ = ["fewer_ends"]


def fewer_ends(ends: Incidence, alive: BoolArray) -> tuple[Incidence, Int64Array]:
    """The ends of all edges with some of the configurations, without slots that none of them has;
    and int64[slots of all edges], which of the messages these were before."""
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
    return Incidence(start, slots, *found), messages[:made].copy()


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
