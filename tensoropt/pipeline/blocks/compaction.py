"""Compaction: neighbours in topological order merge where coarsening could not (section III-B)."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.pipeline.blocks.dag import Dag, quotient_order

__all__ = ["compact"]


def compact(dag: Dag, group: Int64Array, blocks: int, memory_limit: int) -> Int64Array | None:
    """Merge groups until there are as many as blocks are wanted.

    In ascending order of time each group merges with that of its two neighbours in topological
    order that takes less time, where both fit the memory, else with the other. Neighbours in a
    topological order are convex together.

    Args:
        dag: the nodes.
        group: int64[nodes], of groups that have a topological order.
        blocks: how many are wanted.
        memory_limit: bytes of a group at most.

    Returns:
        int64[nodes], the block of every node; None where no two neighbours fit together any more.
    """
    count = int(group.max()) + 1
    order = quotient_order(dag, group, count)
    assert order is not None, "coarsening keeps an order of its groups"
    time = np.bincount(group, weights=dag.time, minlength=count)[order]
    memory = np.bincount(group, weights=dag.memory, minlength=count)[order]
    runs = [[place] for place in range(count)]  # of places in the order, each to become a block
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
    """The first of two neighbours to merge: the smallest group with the smaller that fits."""
    for place in sorted(range(len(times)), key=times.__getitem__):
        beside = [other for other in (place - 1, place + 1) if 0 <= other < len(times)]
        for other in sorted(beside, key=times.__getitem__):
            if memories[place] + memories[other] <= memory_limit:
                return min(place, other)
    return None
