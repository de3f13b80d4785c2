"""Carry frontiers through an edge: from the slots at one end to the slots at the other."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.search.exact.edge_table import EdgeTable
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.merge import Blocks, wider
from tensoropt.search.pareto.reduce import read_only, row_offsets
from tensoropt.search.pareto.table import Table, union
from tensoropt.search.watch import look_at_clock

__all__ = ["through_edge"]


# Triples of the general case that are listed at once: 40 MiB.
_TRIPLES = 1 << 20


def through_edge(
    left: Table,
    batch: Int64Array,
    slots: Int64Array,
    batches: int,
    edge: EdgeTable,
    pointers: BackPointers,
) -> Table:
    """Minimise out the near end of an edge.

    Row ``b * far_count + t`` of the result is the union, over the rows of ``left`` in batch ``b``,
    of the row times the edge's cell from the row's slot to ``t``. States of the near node with the
    same slot should already be one row: then this takes O(slots) products for each of the far
    slots, where the paper's Algorithm 3 takes one for each pair of configurations.

    Args:
        left: the frontiers at the near end.
        batch: int64[rows], ascending: independent problems that share the edge.
        slots: int64[rows], the near slot of each row.
        batches: the number of batches.
        edge: the edge, seen from the near end.
        pointers: the store of identities.
    """
    separable = _separable(edge)
    if separable is not None:
        return _by_running_minimum(left, batch, slots, batches, separable, pointers)
    tables: list[Table] = []
    count = edge.far_count
    starts = np.searchsorted(batch, np.arange(batches + 1))
    first = 0
    while first < batches:
        look_at_clock()
        limit = starts[first] + max(_TRIPLES // count, 1)
        last = max(int(np.searchsorted(starts, limit, side="right")) - 1, first + 1)
        some = starts[first : last + 1]
        blocks = _blocks(left.offsets, edge.table.offsets, some, slots, count)
        tables.append(union(left, edge.table, blocks, (last - first) * count, pointers))
        first = last
    return tables[0] if len(tables) == 1 else _stack(tables)


@numba.njit(cache=True, nogil=True)
def _blocks(
    left_offsets: Int64Array,
    cell_offsets: Int64Array,
    starts: Int64Array,
    slots: Int64Array,
    count: int,
) -> Blocks:
    """Return the products of some batches' rows and the cells of their slots, for each target."""
    blocks = np.empty((5, (starts[-1] - starts[0]) * count), np.int64)
    size = 0
    for batch in range(starts.size - 1):
        for target in range(count):
            for row in range(starts[batch], starts[batch + 1]):
                cell = slots[row] * count + target
                points = left_offsets[row + 1] - left_offsets[row]
                others = cell_offsets[cell + 1] - cell_offsets[cell]
                if points > 0 and others > 0:
                    blocks[0, size], blocks[1, size] = left_offsets[row], points
                    blocks[2, size], blocks[3, size] = cell_offsets[cell], others
                    blocks[4, size] = batch * count + target
                    size += 1
    return blocks[0, :size], blocks[1, :size], blocks[2, :size], blocks[3, :size], blocks[4, :size]


def _stack(tables: list[Table]) -> Table:
    """Join the rows of all tables."""
    return Table(
        np.concatenate([[0], *(table.sizes for table in tables)]).cumsum(),
        np.concatenate([table.memory for table in tables]),
        np.concatenate([table.time for table in tables]),
        np.concatenate([table.identity for table in tables]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Separable:
    """Cells of one point each, whose memory is a sum of one number per end (mostly both 0)."""

    near_memory: Int64Array
    far_memory: Int64Array
    # Time and identity as [far, near], so that a target's row is contiguous.
    time: Int64Array
    identity: Int64Array | None


def _separable(edge: EdgeTable) -> _Separable | None:
    if not edge.table.is_single:
        return None
    shape = edge.near_count, edge.far_count
    memory = edge.table.memory.reshape(shape)
    near, far = memory[:, 0], memory[0] - memory[0, 0]
    if not np.array_equal(memory, near[:, None] + far):
        return None
    identity = None
    if edge.table.identity.any():
        identity = np.ascontiguousarray(edge.table.identity.reshape(shape).T)
    time = np.ascontiguousarray(edge.table.time.reshape(shape).T)
    return _Separable(near, far, read_only(time), identity)


def _by_running_minimum(
    left: Table,
    batch: Int64Array,
    slots: Int64Array,
    batches: int,
    edge: _Separable,
    pointers: BackPointers,
) -> Table:
    """Minimise out the near end of a separable edge.

    All targets see the points in one order of memory, so they are sorted once. Then each target
    adds the edge's times and keeps the points below the running minimum.
    """
    row = left.row_of_points
    slot, group = slots[row], batch[row]
    memory = left.memory + edge.near_memory[slot]
    order = np.lexsort((memory, group))
    memory, slot, time = memory[order], slot[order], left.time[order]
    starts = np.searchsorted(group[order], np.arange(batches + 1))
    count = edge.far_memory.size
    cheapest, dearest = edge.time.min(axis=0), edge.time.max(axis=0)
    survivors = _fall(starts, memory, time, slot, edge.time, cheapest, dearest)
    rows, kept, times = np.ascontiguousarray(survivors.T)
    identity = left.identity[order[kept]]
    if edge.identity is not None:
        identity = pointers.pairs(identity, edge.identity[rows % count, slot[kept]])
    return Table(
        row_offsets(rows, batches * count),
        memory[kept] + edge.far_memory[rows % count],
        times,
        identity,
    )


@numba.njit(cache=True, nogil=True)
def _fall(
    starts: Int64Array,
    memory: Int64Array,
    time: Int64Array,
    slot: Int64Array,
    edge: Int64Array,
    cheapest: Int64Array,
    dearest: Int64Array,
) -> Int64Array:
    """Return int64[survivors, 3]: row, point and time of every batch's frontier at every target.

    Args:
        starts: int64[batches + 1], where each batch's points begin, which are sorted by memory.
        memory, time, slot: int64[points].
        edge: int64[targets, slots], times.
        cheapest, dearest: int64[slots], the least and highest of them over the targets.
    """
    count = edge.shape[0]
    survivors = np.empty((1024, 3), np.int64)
    size = 0
    undominated = np.empty(memory.size, np.int64)
    for batch in range(starts.size - 1):
        # Drop points that lose with their cheapest cell against an earlier one's dearest.
        points = 0
        bound = np.iinfo(np.int64).max
        for point in range(starts[batch], starts[batch + 1]):
            bound = min(bound, time[point] + dearest[slot[point]])
            if time[point] + cheapest[slot[point]] <= bound:
                undominated[points] = point
                points += 1
        for target in range(count):
            if size + points > survivors.shape[0]:
                survivors = wider(survivors, size + points)
            least = np.iinfo(np.int64).max
            last = np.int64(-1)
            for place in range(points):
                point = undominated[place]
                now = time[point] + edge[target, slot[point]]
                if now < least:
                    least = now
                    if last >= 0 and memory[last] == memory[point]:
                        size -= 1
                    survivors[size, 0] = batch * count + target
                    survivors[size, 1] = point
                    survivors[size, 2] = now
                    size += 1
                    last = point
    return survivors[:size]
