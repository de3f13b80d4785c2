"""Blocks cut anew along their order, where moving parts has left one too long."""

from __future__ import annotations

import numba
import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.pipeline.blocks.dag import Dag

__all__ = ["recut"]


def recut(
    dag: Dag, order: Int64Array, blocks: int, memory_limit: int, cap: int
) -> Int64Array | None:
    """Runs of a topological order as blocks: of those within the cap the ones that send least.

    Every run of a topological order is convex. Where none has only runs within the cap, the least
    cap is taken with which one has: at most a node's time above the mean. What a cut sends is what
    was made before it and is read after it.

    Args:
        dag: the nodes.
        order: int64[nodes], a topological order.
        blocks: how many runs.
        memory_limit: bytes of a run at most.
        cap: nanoseconds of a run at most.

    Returns:
        int64[nodes], the run of every node; None where so many runs do not fit the memory.
    """
    time = np.concatenate([[0], np.cumsum(dag.time[order])])
    memory = np.concatenate([[0], np.cumsum(dag.memory[order])])
    low, high = int(dag.time.max()), max(int(time[-1]), cap)
    if _runs(time, memory, high, memory_limit) > blocks:
        return None
    while low < high:
        middle = (low + high) // 2
        if _runs(time, memory, middle, memory_limit) <= blocks:
            high = middle
        else:
            low = middle + 1
    place = np.empty(len(dag), dtype=np.int64)
    place[order] = np.arange(len(dag))
    crossing = _crossing(place, dag.outgoing, dag.target, dag.bytes)
    cuts = _cuts(time, memory, crossing, blocks, max(low, cap), memory_limit)
    run: Int64Array = np.searchsorted(cuts, place, side="right")
    return run


@numba.njit(cache=True, nogil=True)
def _runs(time: Int64Array, memory: Int64Array, cap: int, memory_limit: int) -> int:
    """The fewest runs within two limits; more than there are nodes where there are none."""
    runs, begin = 1, 0
    for end in range(1, time.size):
        if time[end] - time[begin] > cap or memory[end] - memory[begin] > memory_limit:
            runs += 1
            begin = end - 1
            if time[end] - time[begin] > cap or memory[end] - memory[begin] > memory_limit:
                return time.size + 1
    return runs


@numba.njit(cache=True, nogil=True)
def _crossing(
    place: Int64Array, outgoing: Int64Array, target: Int64Array, bytes_: Int64Array
) -> Int64Array:
    """For a cut before each place of the order, the bytes that cross it; a value counts once."""
    change = np.zeros(place.size + 1, np.int64)
    for node in range(place.size):
        last, most = place[node], np.int64(0)
        for edge in range(outgoing[node], outgoing[node + 1]):
            last = max(last, place[target[edge]])
            most = max(most, bytes_[edge])
        change[place[node] + 1] += most
        change[last + 1 if last + 1 < change.size else last] -= most
    return np.cumsum(change)[:-1]


@numba.njit(cache=True, nogil=True)
def _cuts(
    time: Int64Array,
    memory: Int64Array,
    crossing: Int64Array,
    blocks: int,
    cap: int,
    memory_limit: int,
) -> Int64Array:
    """int64[blocks - 1], ascending: where runs begin. The least sum of what crosses, by dynamic
    programming over the number of runs; the least of a window is at the head of a queue."""
    nodes = crossing.size
    most = np.iinfo(np.int64).max
    best = np.full(nodes + 1, most, np.int64)  # of so many first nodes in so many runs
    best[0] = 0
    came = np.zeros((blocks + 1, nodes + 1), np.int64)
    queue = np.empty(nodes + 1, np.int64)
    for run in range(1, blocks + 1):
        following = np.full(nodes + 1, most, np.int64)
        head, tail, begin = 0, 0, 0
        for end in range(1, nodes + 1):
            if best[end - 1] < most:
                cost = best[end - 1] + (crossing[end - 1] if end > 1 else 0)
                while tail > head and _cost(best, crossing, queue[tail - 1]) >= cost:
                    tail -= 1
                queue[tail] = end - 1
                tail += 1
            while time[end] - time[begin] > cap or memory[end] - memory[begin] > memory_limit:
                begin += 1
            while head < tail and queue[head] < begin:
                head += 1
            if head < tail:
                following[end] = _cost(best, crossing, queue[head])
                came[run, end] = queue[head]
        best = following
    cuts = np.empty(blocks - 1, np.int64)
    end = nodes
    for run in range(blocks, 1, -1):
        end = came[run, end]
        cuts[run - 2] = end
    return cuts


@numba.njit(cache=True, nogil=True)
def _cost(best: Int64Array, crossing: Int64Array, begin: int) -> np.int64:
    cost: np.int64 = best[begin] + (crossing[begin] if begin > 0 else 0)
    return cost
