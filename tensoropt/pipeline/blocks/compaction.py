"""Compaction: neighbours in topological order merge after coarsening (RaNNC, section III-B)."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.pipeline.blocks.dag import Dag, quotient_order

__all__ = ["compact"]


def compact(dag: Dag, group: Int64Array, blocks: int, memory_limit: int) -> Int64Array | None:
    """Merge groups until their number is that of the wanted blocks.

    The shortest group merges with the shorter of its two neighbours in topological order. If the
    two do not fit the memory, it merges with the longer neighbour; if these do not fit either, the
    next group is tried. Neighbours in a topological order are convex together.

    Args:
        dag: the nodes.
        group: int64[nodes], the group of each node; the groups have a topological order.
        blocks: the wanted number of blocks.
        memory_limit: the most bytes of a block.

    Returns:
        int64[nodes], the block of every node; None if no two neighbours fit the memory any more.
    """
    count = int(group.max()) + 1
    order = quotient_order(dag, group, count)
    assert order is not None, "coarsening keeps an order of its groups"
    time = np.bincount(group, weights=dag.time, minlength=count)[order]
    memory = np.bincount(group, weights=dag.memory, minlength=count)[order]
    runs = [[place] for place in range(count)]  # the places in the order of each block
    times, memories = time.tolist(), memory.tolist()
    while len(runs) > blocks:
        pair = _pair(times, memories, memory_limit)
        if pair is None:
            return None
        runs[pair] += runs.pop(pair + 1)
        times[pair] += times.pop(pair + 1)
        memories[pair] += memories.pop(pair + 1)
    block_of = np.empty(count, dtype=np.int64)
    for number, run in enumerate(runs):
        block_of[order[run]] = number
    return block_of[group]


def _pair(times: list[float], memories: list[float], memory_limit: int) -> int | None:
    """Return the first place of the two neighbours that merge next; None if no two fit."""
    for place in sorted(range(len(times)), key=times.__getitem__):
        neighbours = [n for n in (place - 1, place + 1) if 0 <= n < len(times)]
        for neighbour in sorted(neighbours, key=times.__getitem__):
            if memories[place] + memories[neighbour] <= memory_limit:
                return min(place, neighbour)
    return None
