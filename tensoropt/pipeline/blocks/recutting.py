"""Blocks cut anew along their order, if uncoarsening has left one too long."""

from __future__ import annotations

import numba
import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.pipeline.blocks.dag import Dag

__all__ = ["recut"]


def recut(
    dag: Dag, order: Int64Array, blocks: int, memory_limit: int, cap: int
) -> Int64Array | None:
    """Cut a topological order into runs within the cap that send each other the fewest bytes.

    Every run of a topological order is convex. If no division keeps all runs within the cap, the
    least cap is taken that one keeps, which is at most one node's time above the mean. The bytes
    sent over a cut are those made before it and read after it.

    Args:
        dag: the nodes.
        order: int64[nodes], a topological order.
        blocks: the number of runs.
        memory_limit: the most bytes of a run.
        cap: the most nanoseconds of a run.

    Returns:
        int64[nodes], the run of every node; None if this number of runs does not fit the memory.
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
    """Return the fewest runs within both limits; more than the nodes if a node exceeds a limit."""
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
    """Return the bytes that cross a cut before each place of the order. A value counts once."""
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
    """Return int64[blocks - 1], ascending: the beginnings of all runs but the first.

    They minimise the sum of the crossing bytes, by dynamic programming over the number of runs. The
    beginnings that the limits allow for an end are a sliding window, whose minimum is at the head
    of a queue.
    """
    nodes = crossing.size
    most = np.iinfo(np.int64).max
    best = np.full(nodes + 1, most, np.int64)  # by end: the least sum of the runs up to there
    best[0] = 0
    came = np.zeros((blocks + 1, nodes + 1), np.int64)  # by run and end: where the run begins
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
    """Return the least sum if the next run begins at ``begin``."""
    cost: np.int64 = best[begin] + (crossing[begin] if begin > 0 else 0)
    return cost
