"""Unions of products of frontiers, by merging sorted runs in compiled code.

A frontier shifted by one point of another is a frontier: a run that is sorted by memory. The runs
of a row are merged two at a time, as in a merge sort. A coarse test drops most dominated products
before that: a row's range of memory is cut into equal bins, and a product is dropped if one in a
lower bin takes no more time. Rows with few products use `tensoropt.search.pareto.insertion`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numba
import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import SearchSizeError
from tensoropt.search.effort import LISTED_PRICE, MERGED, RANGE_PRODUCTS
from tensoropt.search.pareto.insertion import Points, insert, products
from tensoropt.search.pareto.reduce import read_only
from tensoropt.search.threads import in_threads, threads_for

__all__ = ["Blocks", "additions_of", "merged_products", "wider", "writing_of"]


Blocks = tuple[Int64Array, ...]
"""Five arrays, see `merged_products`."""
Survivors = tuple[Int64Array, Int64Array, Int64Array]

_MOST_BINS = 4096
# Points of a run that are tested together, and those of a group within it that are tested next.
_RUN, _FEW = 16, 4
_PARTS = 4
# Rows with at most this number of products insert them one by one.
_DIRECTLY = 512
# The first limits use every eighth point.
_STEP = 8
# Room for the pairs of ranges that wait; each division adds at most _PARTS**2.
_MOST_WAITING = 32 * _PARTS**2


def additions_of(left: Int64Array, right: Int64Array) -> float:
    """Estimate the additions for the products of ranges with ``left`` and ``right`` points.

    All products of short ranges count; of long ranges only those near the frontier.
    """
    looked_at = np.minimum(left * right, RANGE_PRODUCTS * (left + right))
    return float(looked_at.sum()) + LISTED_PRICE * left.size


def writing_of(survivors: int) -> float:
    """Return the additions that take as long as writing the surviving points."""
    return LISTED_PRICE * survivors


def merged_products(left: Points, right: Points, blocks: Blocks, most_points: int) -> Survivors:
    """Return each row's frontier of the union of its products.

    Args:
        left, right: int64[points], memory and time.
        blocks: int64[B] each: the first point and the size of a range on the left, the same on the
            right, and the row of their product, ascending. Every range is a frontier.
        most_points: the most points that may survive.

    Returns:
        int64[survivors] each: row, left point and right point, by row, then by memory. Of equal
            points the first in the order of blocks survives.

    Raises:
        SearchSizeError: if too many survive.
    """
    one, other = ((read_only(memory), read_only(time)) for memory, time in (left, right))
    additions = np.cumsum(blocks[1] * blocks[3])
    if additions.size == 0:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing
    points = 0

    def merge(part: slice) -> Int64Array:
        nonlocal points
        survivors: Int64Array = _merge(one, other, tuple(own[part] for own in blocks))
        points += len(survivors)
        if points > most_points:
            raise SearchSizeError(f"a table of the search has more than {most_points} points.")
        return survivors

    survivors = np.concatenate(in_threads(merge, _shares(blocks[4], additions)))
    rows, lefts, rights = np.ascontiguousarray(survivors.T)
    return rows, lefts, rights


def _shares(rows: Int64Array, additions: Int64Array) -> list[slice]:
    """Divide blocks among threads by their cumulative ``additions``; a row is never divided."""
    workers = threads_for(MERGED * float(additions[-1]))
    if workers < 2:
        return [slice(0, rows.size)]
    evenly = np.linspace(0, additions[-1], 4 * workers + 1)[1:-1]
    cuts = np.unique(np.searchsorted(rows, rows[np.searchsorted(additions, evenly)]))
    return [slice(*ends) for ends in pairwise([0, *cuts[cuts > 0].tolist(), rows.size])]


@numba.njit(cache=True, nogil=True)
def wider(points: Int64Array, size: int) -> Int64Array:
    """Return a copy with room for ``size`` points, and at least twice the present number."""
    copy = np.empty((max(size, 2 * points.shape[0]), points.shape[1]), np.int64)
    for row in range(points.shape[0]):
        for column in range(points.shape[1]):
            copy[row, column] = points[row, column]
    return copy


@numba.njit(cache=True, nogil=True)
def _merge_last(
    runs: Int64Array, spare: Int64Array, begins: Int64Array, depth: np.int64
) -> np.int64:
    """Merge the last two of ``depth`` runs in place; return the number of runs left.

    Of two equal points the earlier run's is kept.
    """
    first, middle, end = begins[depth - 2], begins[depth - 1], begins[depth]
    one, other, size = first, middle, 0
    least = np.iinfo(np.int64).max
    while one < middle or other < end:
        if other == end:
            take_one = True
        elif one == middle:
            take_one = False
        else:
            before = runs[one, 0] < runs[other, 0]
            level = runs[one, 0] == runs[other, 0] and runs[one, 1] <= runs[other, 1]
            take_one = before or level
        place = one if take_one else other
        if runs[place, 1] < least:
            least = runs[place, 1]
            spare[size, 0] = runs[place, 0]
            spare[size, 1] = least
            spare[size, 2] = runs[place, 2]
            spare[size, 3] = runs[place, 3]
            size += 1
        if take_one:
            one += 1
        else:
            other += 1
    for place in range(size):
        for column in range(4):
            runs[first + place, column] = spare[place, column]
    begins[depth - 1] = first + size
    return depth - 1


@numba.njit(cache=True, nogil=True)
def _limits(
    limits: Int64Array, left: Points, right: Points, blocks: Blocks, begin: np.int64, end: np.int64
) -> tuple[int, float]:
    """Set for every bin of memory the least time of lower bins, for blocks ``begin`` to ``end``.

    Returns the lowest memory and the number of bins per byte.
    """
    (left_memory, _), (right_memory, _) = left, right
    left_start, left_size, right_start, right_size, _ = blocks
    lowest = int(left_memory[left_start[begin]] + right_memory[right_start[begin]])
    highest, work = lowest, 0
    for block in range(begin, end):
        first, other = left_start[block], right_start[block]
        last = first + left_size[block] - 1
        other_last = other + right_size[block] - 1
        lowest = min(lowest, int(left_memory[first] + right_memory[other]))
        highest = max(highest, int(left_memory[last] + right_memory[other_last]))
        work += int(left_size[block] * right_size[block])
    bins = min(work // 4, _MOST_BINS)
    scale = (bins - 1) / (float(highest - lowest) + 1.0)
    limits[: bins + 1] = np.iinfo(np.int64).max
    waiting = np.empty((_MOST_WAITING, 4), np.int64)
    for step, few in ((_STEP, _RUN), (1, _FEW)):
        if work // (step * step) >= bins or step == 1:
            for block in range(begin, end):
                one = left_start[block], left_start[block] + left_size[block]
                other = right_start[block], right_start[block] + right_size[block]
                _lower(limits, left, right, one, other, lowest, scale, step, few, waiting)
            for lower in range(bins):
                limits[lower + 1] = min(limits[lower + 1], limits[lower])
    return lowest, scale


@numba.njit(cache=True, nogil=True)
def _lower(
    limits: Int64Array,
    left: Points,
    right: Points,
    one: tuple[int, int],
    other: tuple[int, int],
    lowest: int,
    scale: float,
    step: int,
    few: int,
    waiting: Int64Array,
) -> None:
    """Lower the limits to the products of every ``step``-th point of two ranges.

    Ranges are divided until both have ``few`` points. A pair of ranges is skipped if the sum of
    their least memories and least times is dominated.
    """
    (left_memory, left_time), (right_memory, right_time) = left, right
    waiting[0, 0], waiting[0, 1] = one
    waiting[0, 2], waiting[0, 3] = other
    count = 1
    while count > 0:
        count -= 1
        begin, end = waiting[count, 0], waiting[count, 1]
        first, last = waiting[count, 2], waiting[count, 3]
        place = np.int64((left_memory[begin] - lowest + right_memory[first]) * scale)
        if left_time[end - 1] + right_time[last - 1] >= limits[place]:
            continue
        if end - begin <= few and last - first <= few:
            for shift in range(begin, end, step):
                memory, time = left_memory[shift] - lowest, left_time[shift]
                for point in range(first, last, step):
                    # One further, as limits are of what lies in lower bins.
                    place = np.int64((memory + right_memory[point]) * scale) + 1
                    limits[place] = min(limits[place], time + right_time[point])
            continue
        size = max(few, -((begin - end) // _PARTS))
        other_size = max(few, -((first - last) // _PARTS))
        for part in range(begin, end, size):
            for other_part in range(first, last, other_size):
                waiting[count, 0], waiting[count, 1] = part, min(part + size, end)
                waiting[count, 2] = other_part
                waiting[count, 3] = min(other_part + other_size, last)
                count += 1


@numba.njit(cache=True, nogil=True)
def _open_runs(
    starts: Int64Array, limits: Int64Array, few: Points, many: Points, lowest: int, scale: float
) -> int:
    """Write to ``found`` where runs of ``many`` begin that are not dominated for all of ``few``.

    Returns the number of such runs.
    """
    (few_memory, few_time), (many_memory, many_time) = few, many
    memory, time = few_memory[0] - lowest, few_time[-1]
    count = 0
    for first in range(0, many_memory.size, _RUN):
        end = min(first + _RUN, many_memory.size)
        if time + many_time[end - 1] >= limits[np.int64((memory + many_memory[first]) * scale)]:
            continue
        for begin in range(first, end, _FEW):
            last = min(begin + _FEW, end) - 1
            if time + many_time[last] < limits[np.int64((memory + many_memory[begin]) * scale)]:
                starts[count] = begin
                count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _part(points: Points, first: int, size: int) -> Points:
    """Return a range of points."""
    memory, time = points
    return memory[first : first + size], time[first : first + size]


@numba.njit(cache=True, nogil=True)
def _write_shifted(into: Int64Array, row: int, left: int, right: int, left_size: int) -> None:
    """Write the products of a range of points and one point; either side may be the range."""
    by_left = left_size == into.shape[0]
    for place in range(into.shape[0]):
        into[place, 0] = row
        into[place, 1] = left + (place if by_left else 0)
        into[place, 2] = right + (0 if by_left else place)


@numba.njit(cache=True, nogil=True)
def _write(out: Int64Array, written: int, row: int, runs: Int64Array, size: int) -> Int64Array:
    """Append the first ``size`` runs to a row's output; return ``out``, or a larger copy of it."""
    if written + size > out.shape[0]:
        out = wider(out, written + size)
    for place in range(size):
        out[written + place, 0] = row
        out[written + place, 1] = runs[place, 2]
        out[written + place, 2] = runs[place, 3]
    return out


@numba.njit(cache=True, nogil=True)
def _merge(left: Points, right: Points, blocks: Blocks) -> Int64Array:
    """Return int64[survivors, 3]: row, left point and right point of every survivor; see
    `merged_products`."""
    left_start, left_size, right_start, right_size, rows = blocks
    runs = np.empty((2 * _DIRECTLY, 4), np.int64)
    spare = np.empty((2 * _DIRECTLY, 4), np.int64)
    out = np.empty((max(1024, rows.size), 3), np.int64)
    begins = np.empty(128, np.int64)
    limits = np.empty(_MOST_BINS + 1, np.int64)
    nothing: Any = np.int64(0)  # Numba would compile callees anew for a literal 0.
    written, block = nothing, nothing
    while block < rows.size:
        row, last = rows[block], block
        while last < rows.size and rows[last] == row:
            last += 1
        if last == block + 1 and min(left_size[block], right_size[block]) == 1:
            # One shifted frontier is a frontier.
            size = left_size[block] * right_size[block]
            if written + size > out.shape[0]:
                out = wider(out, written + size)
            shifted = out[written : written + size]
            _write_shifted(shifted, row, left_start[block], right_start[block], left_size[block])
        else:
            if products(left_size[block:last], right_size[block:last]) <= _DIRECTLY:
                size = nothing
                for each in range(block, last):
                    one = _part(left, left_start[each], left_size[each])
                    other = _part(right, right_start[each], right_size[each])
                    size = insert(runs, size, one, other, left_start[each], right_start[each])
            else:
                lowest, scale = _limits(limits, left, right, blocks, block, last)
                depth, begins[0] = nothing, 0
                for each in range(block, last):
                    runs, spare, depth = _add_runs(
                        (runs, spare),
                        begins,
                        depth,
                        limits,
                        left,
                        right,
                        blocks,
                        each,
                        lowest,
                        scale,
                    )
                while depth > 1:
                    depth = _merge_last(runs, spare, begins, depth)
                size = begins[depth]
            out = _write(out, written, row, runs, size)
        written += size
        block = last
    return out[:written]


@numba.njit(cache=True, nogil=True)
def _add_runs(
    stores: tuple[Int64Array, Int64Array],
    begins: Int64Array,
    depth: np.int64,
    limits: Int64Array,
    left: Points,
    right: Points,
    blocks: Blocks,
    block: int,
    lowest: int,
    scale: float,
) -> tuple[Int64Array, Int64Array, np.int64]:
    """Append the products of a block below the limits to a row's runs, and merge runs of similar
    length.

    Returns both stores, which may have grown, and the number of runs.
    """
    runs, spare = stores
    left_start, left_size, right_start, right_size, _ = blocks
    by_left = left_size[block] <= right_size[block]
    few = _part(left, left_start[block], left_size[block])
    many = _part(right, right_start[block], right_size[block])
    one, other = left_start[block], right_start[block]
    if not by_left:
        few, many, one, other = many, few, other, one
    shifts, length = few[0].size, many[0].size
    open_runs = np.empty(length // _FEW + 1, np.int64)
    count = 0
    for shift in range(shifts):
        if shift % _FEW == 0:
            next_few = _part(few, shift, min(_FEW, shifts - shift))
            count = _open_runs(open_runs, limits, next_few, many, lowest, scale)
        end = begins[depth]
        if end + length > runs.shape[0]:
            runs = wider(runs, end + length)
            spare = np.empty(runs.shape, np.int64)
        for run in range(count):
            begin = open_runs[run]
            for place in range(begin, min(begin + _FEW, length)):
                memory = few[0][shift] + many[0][place]
                time = few[1][shift] + many[1][place]
                if time < limits[np.int64((memory - lowest) * scale)]:
                    runs[end, 0] = memory
                    runs[end, 1] = time
                    runs[end, 2] = one + shift if by_left else other + place
                    runs[end, 3] = other + place if by_left else one + shift
                    end += 1
        if end == begins[depth]:
            continue
        depth += 1
        begins[depth] = end
        while depth > 1 and (
            begins[depth - 1] - begins[depth - 2] <= 2 * (end - begins[depth - 1])
        ):
            depth = _merge_last(runs, spare, begins, depth)
            end = begins[depth]
    return runs, spare, depth
