"""The ends of edges after configurations were dropped, without slots that no configuration has."""

from __future__ import annotations

import numba
import numpy as np

from tensoropt.arrays import BoolArray, Int64Array, offsets_of
from tensoropt.search.flat.incidence import Incidence, Side

__all__ = ["fewer_ends"]


def fewer_ends(ends: Incidence, alive: BoolArray) -> tuple[Incidence, Int64Array]:
    """Return the ends of all edges with some of the configurations, and the old number of each
    message.

    Slots that no remaining configuration has are dropped. The second result is int64[remaining
    slots of all edges].
    """
    start = offsets_of(np.add.reduceat(alive.astype(np.int64), ends.start[:-1]))
    counts = np.diff(start)
    sides = [ends.source, ends.target]
    places = offsets_of(np.concatenate([counts[side.node] for side in sides]))
    slots = np.empty(places[-1], dtype=np.int64)
    messages = np.empty(sum(int(side.sizes.sum()) for side in sides), dtype=np.int64)
    edges = ends.source.node.size
    sides_left, made = [], 0
    for side, own in zip(sides, (places[:edges], places[edges:-1]), strict=True):
        first = _renumber(side, ends, alive, own, slots, messages[made:])
        sides_left.append(
            side._replace(slots=own, messages=made + first[:-1], sizes=np.diff(first))
        )
        made += int(first[-1])
    return Incidence(start, slots, *sides_left), messages[:made].copy()


@numba.njit(cache=True, nogil=True)
def _renumber(
    side: Side,
    ends: Incidence,
    alive: BoolArray,
    places: Int64Array,
    slots: Int64Array,
    messages: Int64Array,
) -> Int64Array:
    """Number the slots at one end of every edge that remaining configurations have.

    Args:
        side: the end.
        ends: both ends of all edges.
        alive: bool[configurations of all nodes], the remaining ones.
        places: int64[edges], where the slots of an edge's configurations go in ``slots``.
        slots: int64[any], the output: the new slot of each configuration.
        messages: int64[any], the output: the old number of each remaining message.

    Returns:
        int64[edges + 1], the number of slots of all earlier edges.
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
