"""The dynamic program of `pipeline_frontier`, compiled: it adds stages from the last to the first.

A suffix is a number of consecutive stages up to the last one. A point is a suffix that no other
suffix with the same numbers of stages, first block and devices beats in all `AMOUNTS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int64Array
from tensoropt.pipeline.stages.table import (
    BACKWARD,
    FORWARD,
    ONCE,
    SENDING,
    SENDING_BACK,
    held_bytes,
)

__all__ = [
    *("DEVICES", "FIRST", "LAST", "LONGEST", "LONGEST_BACKWARD", "LONGEST_ONCE", "MEMORY"),
    *("MOST_POINTS", "NEXT", "NO_WAY", "PASSES", "ROW", "STAGES", "Limits", "Tables"),
    "pipeline_suffixes",
]

MOST_POINTS = 20_000_000
"""The most points that one search keeps."""
NO_WAY = np.iinfo(np.int64).max // 4
"""The time of blocks that no stage can run."""

AMOUNTS = PASSES, LONGEST, LONGEST_BACKWARD, LONGEST_ONCE, MEMORY = range(5)
"""Columns of a point that are compared, in nanoseconds and bytes.

``PASSES`` is the sum of the passes of all stages. With GPipe, ``LONGEST`` is the longest forward
pass of a stage, and ``LONGEST_BACKWARD`` the longest backward pass. With other schedules,
``LONGEST`` is the longest sum of a stage's two passes, and ``LONGEST_BACKWARD`` is 0.
``LONGEST_ONCE`` is the longest time once per step. ``MEMORY`` is the most memory of a device."""
NEXT, STAGES, ROW, FIRST, LAST, DEVICES = range(5, 11)
"""Columns of a point that describe its stages: the point without the first stage (-1 if there is no
other stage), the number of stages, and of the first stage its row, its blocks and its devices."""
_COLUMNS = 11
_COMPARED_AT_ONCE = 1 << 26
"""The comparisons of points after which a call of the compiled loop ends, to look at the clock.
They take some tenths of a second."""


class Tables(NamedTuple):
    """The arrays of a search.

    Attributes:
        begin, values: those of a `StageTable`.
        sizes: int64[variants], the numbers of devices of the variants of a stage, ascending.
        held: int64[stages + 1], by the number of stages of a suffix: the microbatches in flight in
            its first stage, if other stages come before it.
        incumbent: int64[pipelines, 2], memory and time of known pipelines, by memory.
        rest: int64[2, blocks + 1], by a number of blocks: the least sum of the passes of stages
            that run the first blocks; and the least sum of passes times devices. `NO_WAY` if no
            stages can run them.
        fits: bool[devices, variants], whether a variant may be used with a number of devices behind
            it.
        counted: float64[variants], the share of a variant's bytes that counts.
    """

    begin: Int64Array
    values: Int64Array
    sizes: Int64Array
    held: Int64Array
    incumbent: Int64Array
    rest: Int64Array
    fits: BoolArray
    counted: Float64Array


class Limits(NamedTuple):
    """The numbers of a search.

    Attributes:
        devices: the devices of one copy of the pipeline.
        machine: the devices of a machine.
        microbatches: the microbatches of a copy.
        memory_limit: the most bytes of a device.
        fewest: the fewest stages.
        gpipe: whether the schedule is GPipe.
        worse: a point is dropped if a known pipeline takes at most this multiple of its time.
        share: memory is rounded up by at most this share.
        sum_grid, longest_grid, once_grid: nanoseconds to whose multiples the sum of passes, the
            longest pass and the longest time once per step are rounded up.
    """

    devices: int
    machine: int
    microbatches: int
    memory_limit: int
    fewest: int
    gpipe: bool
    worse: float
    share: float
    sum_grid: int
    longest_grid: int
    once_grid: int


def pipeline_suffixes(
    tables: Tables, limits: Limits, is_over: Callable[[], bool]
) -> tuple[Int64Array, Int64Array]:
    """Return all points, int64[any, 11], and the numbers of the points that are whole pipelines.

    With more than `MOST_POINTS` points, the only number is -1.

    Args:
        tables, limits: those of the search.
        is_over: whether time is over. Then pipelines with more stages are not searched.
    """
    blocks, most = tables.begin.shape[0], tables.held.size - 1
    devices = limits.devices
    pool = np.zeros((1024, _COLUMNS), np.int64)
    pool[0, NEXT] = -1  # the suffix without stages
    size = 1
    # By stages, first block and devices: where the points of a state begin and end in the pool.
    begin = np.zeros((most + 1, blocks + 1, devices + 1), np.int64)
    end = np.zeros((most + 1, blocks + 1, devices + 1), np.int64)
    end[0, blocks, 0] = 1
    # By stages and devices: the least and the greatest first block of a state with points. On
    # thousands of devices most states have none.
    firsts = np.zeros((most + 1, devices + 1, 2), np.int64)
    firsts[:, :, 0] = blocks + 1
    firsts[0, 0] = blocks
    stages, state = 1, 0
    while stages <= most and not is_over():
        pool, size, state = _add_states(
            (stages, state), tables, limits, pool, size, (begin, end, firsts)
        )
        if size < 0:
            return pool, np.full(1, -1, np.int64)
        if state == blocks * (devices + 1):
            stages, state = stages + 1, 0
    whole = zip(begin[:, 0, devices].tolist(), end[:, 0, devices].tolist(), strict=True)
    return pool, np.concatenate([np.arange(low, high) for low, high in whole])


@numba.njit(cache=True, nogil=True)
def _add_states(
    start: tuple[int, int],
    tables: Tables,
    limits: Limits,
    pool: Int64Array,
    size: int,
    ranges: tuple[Int64Array, Int64Array, Int64Array],
) -> tuple[Int64Array, int, int]:
    """Add the points of states with one number of stages.

    The states have numbers, by first block and then by devices. The call ends early after
    `_COMPARED_AT_ONCE` comparisons.

    Args:
        start: the stages, and the number of the first state.
        tables, limits: those of the search.
        pool: the points so far. If it is too small, a larger one is returned.
        size: their number.
        ranges: see `_points_of`; they get the new states.

    Returns:
        The points; their number, -1 if there are more than `MOST_POINTS`; and the number of the
            state with which the next call goes on.
    """
    begin, end, firsts = ranges
    points = np.zeros((64, _COLUMNS), np.int64)
    stages, compared = start[0], 0
    states = tables.begin.shape[0] * (limits.devices + 1)
    for state in range(start[1], states):
        if compared > _COMPARED_AT_ONCE:
            return pool, size, state
        first, used = divmod(state, limits.devices + 1)
        if used < stages or (used == limits.devices) != (first == 0):
            continue
        if tables.rest[0, first] >= NO_WAY:
            continue
        if first == 0 and stages < limits.fewest:
            continue
        points, count, more = _points_of(
            (stages, first, used), tables, limits, pool, ranges, points
        )
        compared += more
        while size + count > pool.shape[0]:
            pool = _doubled(pool)
        if size + count > MOST_POINTS:
            return pool, -1, state
        begin[stages, first, used] = size
        if count:
            firsts[stages, used, 0] = min(firsts[stages, used, 0], first)
            firsts[stages, used, 1] = first
        for place in range(count):
            for column in range(_COLUMNS):
                pool[size, column] = points[place, column]
            if pool[size, NEXT] == 0:
                pool[size, NEXT] = -1
            size += 1
        end[stages, first, used] = size
    return pool, size, states


@numba.njit(cache=True, nogil=True)
def _points_of(
    state: tuple[int, int, int],
    tables: Tables,
    limits: Limits,
    pool: Int64Array,
    ranges: tuple[Int64Array, Int64Array, Int64Array],
    points: Int64Array,
) -> tuple[Int64Array, int, int]:
    """Return the points of one state, in the first rows of a buffer, their number, and the number
    of comparisons.

    Args:
        state: the stages, the first block and the devices of the suffix.
        tables, limits: those of the search.
        pool: the points of all states with fewer stages.
        ranges: where the points of each state begin and end in ``pool``, and the least and greatest
            first block of the states with points.
        points: the buffer, int64[any, 11]. If it is too small, a larger one is returned.
    """
    stages, first, used = state
    in_flight = 1 if stages == 1 and first == 0 else tables.held[stages]
    rest_passes, rest_shared = tables.rest[0, first], tables.rest[1, first]
    new = np.zeros(_COLUMNS, np.int64)
    count, compared = 0, 0
    for number in range(tables.sizes.size):
        devices = tables.sizes[number]
        behind = used - devices
        if behind < stages - 1:
            break
        if not tables.fits[behind, number] or not _is_aligned(devices, behind, limits.machine):
            continue
        across = behind % limits.machine == 0, used % limits.machine == 0
        least, most = ranges[2][stages - 1, behind]
        for last in range(max(first, least - 1), most):
            low = ranges[0][stages - 1, last + 1, behind]
            high = ranges[1][stages - 1, last + 1, behind]
            if low == high:
                continue
            for row in range(
                tables.begin[first, last, number], tables.begin[first, last, number + 1]
            ):
                counted = tables.counted[number]
                stage = _amounts(tables.values[row], in_flight, across, limits, counted)
                compared += 1
                if stage[MEMORY] < 0:
                    continue
                for point in range(low, high):
                    compared += 1
                    new[PASSES] = pool[point, PASSES] + stage[PASSES]
                    new[LONGEST] = max(pool[point, LONGEST], stage[LONGEST])
                    backward = max(pool[point, LONGEST_BACKWARD], stage[LONGEST_BACKWARD])
                    new[LONGEST_BACKWARD] = backward
                    new[LONGEST_ONCE] = max(pool[point, LONGEST_ONCE], stage[LONGEST_ONCE])
                    new[MEMORY] = max(pool[point, MEMORY], stage[MEMORY])
                    longest = new[LONGEST] + backward
                    if used < limits.devices:
                        longest = max(longest, rest_shared // (limits.devices - used))
                    time = new[PASSES] + rest_passes + new[LONGEST_ONCE]
                    time += (limits.microbatches - 1) * longest
                    if _is_known(tables.incumbent, new[MEMORY], limits.worse * time):
                        continue
                    new[NEXT], new[STAGES], new[ROW] = point, stages, row
                    new[FIRST], new[LAST], new[DEVICES] = first, last, devices
                    if count == points.shape[0]:
                        points = _doubled(points)
                    compared += count
                    count = _insert(points, count, new)
    return points, count, compared


@numba.njit(cache=True, nogil=True)
def _is_aligned(devices: int, behind: int, machine: int) -> bool:
    """Whether a stage lies within a machine or has whole machines.

    Devices are counted from the last one; machines begin at multiples of their size from there,
    too. ``behind`` devices run the stages behind.
    """
    if devices <= machine:
        return behind // machine == (behind + devices - 1) // machine
    return behind % machine == 0 and devices % machine == 0


@numba.njit(cache=True, nogil=True)
def _amounts(
    row: Int64Array, in_flight: int, across: tuple[bool, bool], limits: Limits, counted: float
) -> tuple[int, int, int, int, int]:
    """Return the rounded `AMOUNTS` of one stage; a memory of -1 if it exceeds the limit.

    ``across`` tells whether the next stage, and the previous one, is on another machine;
    ``counted`` is the share of the memory that counts.
    """
    memory = math.ceil(held_bytes(row, in_flight) * counted)
    if memory > limits.memory_limit:
        return 0, 0, 0, 0, -1
    forward = row[FORWARD] + row[SENDING + (1 if across[0] else 0)]
    backward = row[BACKWARD] + row[SENDING_BACK + (1 if across[1] else 0)]
    both = forward + backward
    return (
        _rounded_up(both, limits.sum_grid),
        _rounded_up(forward if limits.gpipe else both, limits.longest_grid),
        _rounded_up(backward, limits.longest_grid) if limits.gpipe else 0,
        _rounded_up(row[ONCE], limits.once_grid),
        _rounded_up(memory, _power_below(limits.share * memory)),
    )


@numba.njit(cache=True, nogil=True)
def _rounded_up(value: int, grid: int) -> int:
    return -(-value // grid) * grid


@numba.njit(cache=True, nogil=True)
def _power_below(value: float) -> int:
    """Return the greatest power of two that is at most ``value``; at least 1."""
    power = 1
    while 2 * power <= value:
        power *= 2
    return power


@numba.njit(cache=True, nogil=True)
def _is_known(incumbent: Int64Array, memory: int, time: float) -> bool:
    """Whether a known pipeline takes at most the given memory and time."""
    low, high = 0, incumbent.shape[0]
    while low < high:
        middle = (low + high) // 2
        if incumbent[middle, 0] <= memory:
            low = middle + 1
        else:
            high = middle
    return low > 0 and incumbent[low - 1, 1] <= time


@numba.njit(cache=True, nogil=True)
def _insert(points: Int64Array, count: int, new: Int64Array) -> int:
    """Insert a point unless another is at least as good in all amounts; drop those that it beats.

    Returns the number of points afterwards.
    """
    for place in range(count):
        if (
            points[place, 0] <= new[0]
            and points[place, 1] <= new[1]
            and points[place, 2] <= new[2]
            and points[place, 3] <= new[3]
            and points[place, 4] <= new[4]
        ):
            return count
    kept = 0
    for place in range(count):
        beaten = (
            new[0] <= points[place, 0]
            and new[1] <= points[place, 1]
            and new[2] <= points[place, 2]
            and new[3] <= points[place, 3]
            and new[4] <= points[place, 4]
        )
        if not beaten:
            if kept != place:
                for column in range(_COLUMNS):
                    points[kept, column] = points[place, column]
            kept += 1
    for column in range(_COLUMNS):
        points[kept, column] = new[column]
    return kept + 1


@numba.njit(cache=True, nogil=True)
def _doubled(points: Int64Array) -> Int64Array:
    """Return an array of twice as many rows that begins with the given ones."""
    wide = np.zeros((2 * points.shape[0], points.shape[1]), np.int64)
    wide[: points.shape[0]] = points
    return wide
