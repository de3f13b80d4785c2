"""Uncoarsening: boundaries between blocks move, coarse parts first (section III-B)."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from tensoropt.arrays import Int64Array, offsets_of
from tensoropt.pipeline.blocks.dag import Dag

__all__ = ["uncoarsen"]

_BALANCE_PASSES, _SENDING_PASSES = 12, 3


def uncoarsen(
    dag: Dag, rounds: Sequence[Int64Array], block: Int64Array, memory_limit: int, cap: int
) -> Int64Array:
    """Move parts of blocks to adjacent blocks, those of the last round of coarsening first.

    A part moves out of a block whose time is above the cap, to one that then still takes less
    than this block did; and wherever fewer bytes are sent between blocks then, and the other block
    stays within the cap. Blocks keep fitting the memory and having a topological order, and
    none becomes empty.

    (RaNNC, too, moves groups between the groups of the round above, which are then parts of the
    same block or not; here the blocks themselves are what they move between, as in the k-way
    refinement of Karypis and Kumar, "Multilevel k-way partitioning scheme for irregular graphs",
    1998, which it builds upon.)

    Args:
        dag: the nodes.
        rounds: of coarsening, int64[nodes] each: the group of every node.
        block: int64[nodes], unions of groups of the last round.
        memory_limit: bytes of a block at most.
        cap: nanoseconds that a block takes at most, where it can be so.

    Returns:
        int64[nodes], the block of every node.
    """
    blocks = int(block.max()) + 1
    block = block.copy()
    edges = (
        dag.outgoing,
        dag.target,
        dag.bytes,
        dag.incoming,
        np.ascontiguousarray(dag.source[dag.incoming_edges]),
    )
    for group in reversed(rounds):
        groups = int(group.max()) + 1
        members = np.argsort(group, kind="stable").astype(np.int64)
        begin = offsets_of(np.bincount(group, minlength=groups))
        count = np.zeros((blocks, blocks), dtype=np.int64)
        np.add.at(count, (block[dag.source], block[dag.target]), 1)
        load = np.zeros((blocks, 3), dtype=np.int64)  # time, memory, parts
        load[:, 0] = np.bincount(block, weights=dag.time, minlength=blocks)
        load[:, 1] = np.bincount(block, weights=dag.memory, minlength=blocks)
        load[:, 2] = np.bincount(block[members[begin[:-1]]], minlength=blocks)
        parts = begin, members
        weights = dag.time, dag.memory
        for _ in range(_BALANCE_PASSES):
            if not _pass(parts, weights, edges, block, count, load, memory_limit, cap, True):
                break
        for _ in range(_SENDING_PASSES):
            if not _pass(parts, weights, edges, block, count, load, memory_limit, cap, False):
                break
    return block


_Edges = tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]
_Pair = tuple[Int64Array, Int64Array]


@numba.njit(cache=True, nogil=True)
def _pass(
    parts: _Pair,
    weights: _Pair,
    edges: _Edges,
    block: Int64Array,
    count: Int64Array,
    load: Int64Array,
    memory_limit: int,
    cap: int,
    balancing: bool,
) -> int:
    """Look once at every part; returns how many have moved."""
    begin, members = parts
    outgoing, target, _, incoming, source = edges
    blocks = count.shape[0]
    moved = 0
    out, into = np.zeros(blocks, np.int64), np.zeros(blocks, np.int64)
    best = np.zeros(blocks, np.int64)
    stamp, known, marks = np.zeros(block.size, np.int64), np.zeros(block.size, np.int64), 0
    makers = np.empty(block.size, np.int64)
    for part in range(begin.size - 1):
        own = members[begin[part] : begin[part + 1]]
        here = block[own[0]]
        if load[here, 2] < 2 or (balancing and load[here, 0] <= cap):
            continue
        marks += 1
        out[:] = 0
        into[:] = 0
        size, time, memory = 0, 0, 0
        for node in own:
            stamp[node] = marks
            time += weights[0][node]
            memory += weights[1][node]
            makers[size] = node
            size += 1
        # Edges inside the part stay inside a block, so only those to and from others count.
        for node in own:
            for edge in range(outgoing[node], outgoing[node + 1]):
                if stamp[target[edge]] != marks:
                    out[block[target[edge]]] += 1
        for node in own:
            for edge in range(incoming[node], incoming[node + 1]):
                maker = source[edge]
                if stamp[maker] == marks:
                    continue
                into[block[maker]] += 1
                if known[maker] != marks:
                    known[maker] = marks
                    makers[size] = maker
                    size += 1
        before = np.int64(-1)
        chosen, chosen_gain, chosen_load = -1, np.int64(0), np.int64(0)
        for there in range(blocks):
            if there == here or (out[there] == 0 and into[there] == 0):
                continue
            if load[there, 1] + memory > memory_limit:
                continue
            after_load = load[there, 0] + time
            if balancing:
                if after_load >= load[here, 0]:
                    continue
            elif after_load > cap:
                continue
            if before < 0:
                before = _sent(makers[:size], edges, block, best)
            for node in own:
                block[node] = there
            gain = before - _sent(makers[:size], edges, block, best)
            for node in own:
                block[node] = here
            better = chosen < 0 or after_load < chosen_load if balancing else gain > chosen_gain
            if better and _keeps_order(count, out, into, here, there):
                chosen, chosen_gain, chosen_load = there, gain, after_load
        if chosen >= 0:
            _shift(count, out, into, here, chosen, 1)
            for node in own:
                block[node] = chosen
            load[here, 0] -= time
            load[here, 1] -= memory
            load[here, 2] -= 1
            load[chosen, 0] += time
            load[chosen, 1] += memory
            load[chosen, 2] += 1
            moved += 1
    return moved


@numba.njit(cache=True, nogil=True)
def _sent(makers: Int64Array, edges: _Edges, block: Int64Array, best: Int64Array) -> np.int64:
    """Bytes that some nodes send to other blocks; ``best`` is zeros before and after."""
    outgoing, target, bytes_ = edges[0], edges[1], edges[2]
    total = np.int64(0)
    for node in makers:
        here = block[node]
        for edge in range(outgoing[node], outgoing[node + 1]):
            there = block[target[edge]]
            if there != here and bytes_[edge] > best[there]:
                total += bytes_[edge] - best[there]
                best[there] = bytes_[edge]
        for edge in range(outgoing[node], outgoing[node + 1]):
            best[block[target[edge]]] = 0
    return total


@numba.njit(cache=True, nogil=True)
def _shift(
    count: Int64Array, out: Int64Array, into: Int64Array, here: int, there: int, sign: int
) -> None:
    """Count the edges of a part as those of another block."""
    for other in range(count.shape[0]):
        count[here, other] -= sign * out[other]
        count[there, other] += sign * out[other]
    for other in range(count.shape[0]):
        count[other, here] -= sign * into[other]
        count[other, there] += sign * into[other]


@numba.njit(cache=True, nogil=True)
def _keeps_order(
    count: Int64Array, out: Int64Array, into: Int64Array, here: int, there: int
) -> bool:
    """Whether blocks have a topological order once a part has moved: what is new leads from or to
    ``there``, so a circle would, too."""
    _shift(count, out, into, here, there, 1)
    blocks = count.shape[0]
    seen = np.zeros(blocks, np.bool_)
    stack = np.empty(blocks, np.int64)
    stack[0] = there
    depth, found = 1, False
    while depth > 0 and not found:
        depth -= 1
        one = stack[depth]
        for other in range(blocks):
            if other == one or count[one, other] <= 0:
                continue
            if other == there:
                found = True
                break
            if not seen[other]:
                seen[other] = True
                stack[depth] = other
                depth += 1
    _shift(count, out, into, here, there, -1)
    return not found
