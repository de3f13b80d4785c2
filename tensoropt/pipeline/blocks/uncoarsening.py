"""Uncoarsening: the boundaries between blocks move, coarse parts first (RaNNC, section III-B)."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from tensoropt.arrays import Int64Array, offsets_of
from tensoropt.pipeline.blocks.dag import Dag

__all__ = ["uncoarsen"]

_BALANCE_PASSES, _SENDING_PASSES = 12, 3
"""The most passes over the parts of a round: to shorten blocks, and to send fewer bytes."""


def uncoarsen(
    dag: Dag, rounds: Sequence[Int64Array], block: Int64Array, memory_limit: int, cap: int
) -> Int64Array:
    """Move parts of blocks to adjacent blocks; the parts are the groups of a round of coarsening.

    The last (coarsest) round comes first. For each round there are two kinds of passes:

    1. A part leaves a block above the cap for the shortest adjacent block that, with the part,
       takes less time than the block that it leaves.
    2. A part moves to the adjacent block that saves the most sent bytes and stays within the cap.

    Blocks continue to fit the memory and to have a topological order, and none becomes empty.

    RaNNC moves groups between the groups of the round above. TensorOpt moves them between blocks,
    as the k-way refinement on which RaNNC builds: Karypis and Kumar, "Multilevel k-way
    partitioning scheme for irregular graphs", 1998.

    Args:
        dag: the nodes.
        rounds: the rounds of coarsening, int64[nodes] each: the group of every node.
        block: int64[nodes], the block of each node. Blocks are unions of groups of the last round.
        memory_limit: the most bytes of a block.
        cap: the most nanoseconds of a block, which is kept if possible.

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
    """Try to move every part once, and return how many parts have moved.

    Args:
        parts: where the nodes of each part begin, and the nodes of all parts.
        weights: time and memory of the nodes.
        edges: the edges of the nodes.
        block: int64[nodes], the block of each node; changed in place.
        count: int64[blocks, blocks], the edges between blocks; changed in place.
        load: int64[blocks, 3], time, memory and number of parts; changed in place.
        memory_limit: the most bytes of a block.
        cap: the most nanoseconds of a block.
        balancing: whether parts move out of blocks above the cap, or to save sent bytes.
    """
    begin, members = parts
    blocks = count.shape[0]
    moved = 0
    out, into = np.zeros(blocks, np.int64), np.zeros(blocks, np.int64)
    inside, known = np.zeros(block.size, np.int64), np.zeros(block.size, np.int64)
    buffers = inside, known, np.empty(block.size, np.int64)
    for part in range(begin.size - 1):
        nodes = members[begin[part] : begin[part + 1]]
        here = block[nodes[0]]
        if load[here, 2] < 2 or (balancing and load[here, 0] <= cap):
            continue
        makers = _outer_edges(nodes, part + 1, edges, block, (out, into), buffers)
        weight = weights[0][nodes].sum(), weights[1][nodes].sum()
        limits = memory_limit, cap
        there = _best_block(
            nodes, makers, weight, edges, block, count, load, (out, into), limits, balancing
        )
        if there >= 0:
            _shift(count, out, into, here, there, 1)
            for node in nodes:
                block[node] = there
            for row, sign in ((here, -1), (there, 1)):
                load[row, 0] += sign * weight[0]
                load[row, 1] += sign * weight[1]
                load[row, 2] += sign
            moved += 1
    return moved


@numba.njit(cache=True, nogil=True)
def _outer_edges(
    nodes: Int64Array,
    mark: int,
    edges: _Edges,
    block: Int64Array,
    ends: _Pair,
    buffers: tuple[Int64Array, Int64Array, Int64Array],
) -> Int64Array:
    """Count the edges between a part and every block, without those inside the part.

    Args:
        nodes: those of the part.
        mark: a number that no other part of this pass has.
        edges: the edges of the nodes.
        block: int64[nodes], the block of each node.
        ends: int64[blocks] each: set to the edges to each block, and from each block.
        buffers: int64[nodes] each: the mark of the last part that holds a node; the mark of the
            last part to which a node sends; the result.

    Returns:
        The nodes of the part, and the nodes outside that send to them.
    """
    outgoing, target, _, incoming, source = edges
    out, into = ends
    inside, known, makers = buffers
    out[:] = 0
    into[:] = 0
    size = nodes.size
    makers[:size] = nodes
    for node in nodes:
        inside[node] = mark
    for node in nodes:
        for edge in range(outgoing[node], outgoing[node + 1]):
            if inside[target[edge]] != mark:
                out[block[target[edge]]] += 1
        for edge in range(incoming[node], incoming[node + 1]):
            maker = source[edge]
            if inside[maker] == mark:
                continue
            into[block[maker]] += 1
            if known[maker] != mark:
                known[maker] = mark
                makers[size] = maker
                size += 1
    return makers[:size]


@numba.njit(cache=True, nogil=True)
def _best_block(
    nodes: Int64Array,
    makers: Int64Array,
    weight: tuple[int, int],
    edges: _Edges,
    block: Int64Array,
    count: Int64Array,
    load: Int64Array,
    ends: _Pair,
    limits: tuple[int, int],
    balancing: bool,
) -> int:
    """Return the adjacent block to which a part moves; -1 if it stays.

    Args:
        nodes: those of the part.
        makers: the nodes whose sent bytes change, from `_outer_edges`.
        weight: time and memory of the part.
        edges, block, count, load: as in `_pass`.
        ends: the numbers of edges to and from each block, from `_outer_edges`.
        limits: the most bytes, and the most nanoseconds, of a block.
        balancing: whether the shortest block is best, or the one that saves most sent bytes.
    """
    out, into = ends
    time, memory = weight
    memory_limit, cap = limits
    here = block[nodes[0]]
    best = np.zeros(count.shape[0], np.int64)
    before = np.int64(-1)
    chosen, chosen_gain, chosen_load = -1, np.int64(0), np.int64(0)
    for there in range(count.shape[0]):
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
            before = _sent(makers, edges, block, best)
        for node in nodes:
            block[node] = there
        gain = before - _sent(makers, edges, block, best)
        for node in nodes:
            block[node] = here
        better = chosen < 0 or after_load < chosen_load if balancing else gain > chosen_gain
        if better and _keeps_order(count, out, into, here, there):
            chosen, chosen_gain, chosen_load = there, gain, after_load
    return chosen


@numba.njit(cache=True, nogil=True)
def _sent(makers: Int64Array, edges: _Edges, block: Int64Array, best: Int64Array) -> np.int64:
    """Return the bytes that the given nodes send to other blocks.

    ``best`` is a buffer, int64[blocks], of zeros before and after.
    """
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
    """Move a part from ``here`` to ``there`` in the edge counts; ``sign`` -1 takes this back."""
    for block in range(count.shape[0]):
        count[here, block] -= sign * out[block]
        count[there, block] += sign * out[block]
    for block in range(count.shape[0]):
        count[block, here] -= sign * into[block]
        count[block, there] += sign * into[block]


@numba.njit(cache=True, nogil=True)
def _keeps_order(
    count: Int64Array, out: Int64Array, into: Int64Array, here: int, there: int
) -> bool:
    """Whether blocks still have a topological order after a part has moved.

    All new edges begin or end at ``there``. So a cycle, if there is one, leads through ``there``.
    """
    _shift(count, out, into, here, there, 1)
    blocks = count.shape[0]
    seen = np.zeros(blocks, np.bool_)
    stack = np.empty(blocks, np.int64)
    stack[0] = there
    depth, cyclic = 1, False
    while depth > 0 and not cyclic:
        depth -= 1
        block = stack[depth]
        for following in range(blocks):
            if following == block or count[block, following] <= 0:
                continue
            if following == there:
                cyclic = True
                break
            if not seen[following]:
                seen[following] = True
                stack[depth] = following
                depth += 1
    _shift(count, out, into, here, there, -1)
    return not cyclic
