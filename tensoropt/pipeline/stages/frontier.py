"""The frontier of step time and memory over all pipelines of a model's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import InfeasibleError, SearchSizeError
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem, Stage
from tensoropt.pipeline.stages.table import StageTable
from tensoropt.search.pareto.frontier import Frontier, FrontierPoint
from tensoropt.search.pareto.reduce import reduce_points
from tensoropt.transformations.staged.schedule import SCHEDULES, Schedule, in_flight

__all__ = ["Counts", "merged_frontier", "pipeline_frontier", "stage_sizes"]

_MOST_POINTS = 20_000_000
_NO_WAY = np.iinfo(np.int64).max // 4


def pipeline_frontier(
    problem: PipelineProblem,
    schedules: Sequence[Schedule] = SCHEDULES,
    recompute: Sequence[bool] = (False, True),
    sizes: Sequence[int] | None = None,
    epsilon: float = 0.0,
    known: Sequence[Pipeline] = (),
    counts: Counts | None = None,
) -> tuple[Pipeline, ...]:
    """The pipelines that no other beats in both time and memory, by ascending memory.

    Of every number of stages, of copies (which divide the machines) and of microbatches (powers of
    two, of at least one example), every schedule, and of each stage every number of devices, point
    of its frontier and, or not, recomputation. A stage lies within a machine or has whole machines.
    A pipeline of one stage is no pipeline; its microbatches are accumulated gradients.

    One dynamic program for each number of copies and microbatches and each schedule, from the last
    stage on, so that a stage's microbatches in flight follow from how many stages are behind it,
    and pipelines of all numbers of stages are suffixes of each other. State: (stages, first block,
    devices). It keeps the points that no other beats in any of what a step's time and memory are
    made of (`step_nanoseconds`): the sum of passes, the longest ones, the longest of what comes
    once, memory. All of these only grow, so what a known pipeline beats already is left out, with
    the least that the blocks before can take: the sum of their passes, and as the longest of them
    their devices' time, shared evenly.

    Args:
        problem: the blocks.
        schedules: which are searched.
        recompute: what a stage may do.
        sizes: numbers of devices of a stage; `stage_sizes` of them if left out.
        epsilon: how far from exact the frontier may be: for every pipeline it has one of at most
            1 + ``epsilon`` times its memory and its time.
        known: pipelines of the problem, such as those of some of its stages' points.
        counts: of stages, microbatches and copies, if not all of them are searched.

    Raises:
        InfeasibleError: if no pipeline is within the limits.
        SearchSizeError: if too many points would have to be kept at once.
    """
    machine = problem.links.machine
    known, counts = _reduced(list(known)), counts or Counts()
    for machines in (n for n in range(1, problem.machines + 1) if problem.machines % n == 0):
        copies, devices = problem.machines // machines, machines * machine
        if counts.copies is not None and copies not in counts.copies:
            continue
        fitting = [each for each in (sizes or stage_sizes(machine, machines)) if each <= devices]
        for microbatches in counts.of_microbatches(problem.batch // copies):
            microbatch = problem.batch // copies // microbatches
            table = StageTable.of(problem, fitting, microbatch, copies, recompute)
            for schedule in schedules:
                search = _Search(problem, table, devices, copies, microbatches, schedule)
                known = _reduced([*known, *search.pipelines(known, epsilon, counts)])
    if not known:
        limit = problem.time_limit
        raise InfeasibleError(
            f"a pipeline fits {problem.memory_limit} bytes of each device"
            f"{'' if limit is None else f' and {limit} ns'}. Got none that does, of "
            f"{problem.blocks} blocks on {problem.devices} devices; use more devices, a smaller "
            "batch or more blocks."
        )
    return tuple(known)


@dataclass(frozen=True, slots=True)
class Counts:
    """Which numbers are searched; all of them where nothing is said.

    Attributes:
        stages: the fewest and the most.
        microbatches: of each copy's share of the batch.
        copies: of the whole pipeline.
    """

    stages: tuple[int, int] | None = None
    microbatches: Sequence[int] | None = None
    copies: Sequence[int] | None = None

    def of_microbatches(self, examples: int) -> list[int]:
        """Those that so many examples suffice for."""
        if self.microbatches is None:
            return [1 << n for n in range(examples.bit_length())]
        return [each for each in self.microbatches if each <= examples]


def stage_sizes(machine: int, machines: int) -> tuple[int, ...]:
    """Numbers of devices that stages have if not told: divisors of a machine, powers of two and
    all machines."""
    parts = [n for n in range(1, machine + 1) if machine % n == 0]
    whole = [machine << n for n in range(machines.bit_length()) if 1 << n <= machines]
    return tuple(sorted({*parts, *whole, machine * machines}))


def merged_frontier(
    pipelines: Sequence[Pipeline], frontier: Frontier
) -> tuple[Pipeline | FrontierPoint, ...]:
    """What no other beats among pipelines and the strategies of a frontier without a pipeline, by
    ascending memory; of equals the strategy, which is simpler."""
    every: list[Pipeline | FrontierPoint] = [*frontier, *pipelines]
    return tuple(every[place] for place in _order(every))


def _reduced(pipelines: list[Pipeline]) -> list[Pipeline]:
    return [pipelines[place] for place in _order(pipelines)]


def _order(every: Sequence[Pipeline | FrontierPoint]) -> list[int]:
    memory = np.array([each.memory for each in every], dtype=np.int64)
    time = np.array([each.time for each in every], dtype=np.int64)
    return [int(place) for place in reduce_points(memory, time)]


class _Search:
    """Pipelines of one number of copies and microbatches and one schedule."""

    def __init__(
        self,
        problem: PipelineProblem,
        table: StageTable,
        devices: int,
        copies: int,
        microbatches: int,
        schedule: Schedule,
    ) -> None:
        self._problem, self._table, self._devices = problem, table, devices
        self._copies, self._microbatches, self._schedule = copies, microbatches, schedule

    def pipelines(
        self, known: Sequence[Pipeline], epsilon: float, counts: Counts
    ) -> list[Pipeline]:
        """Those that no known one beats, with epsilon half for it and half for rounding."""
        problem, table = self._problem, self._table
        most = min(problem.blocks, self._devices)
        fewest, most = (
            (1, most) if counts.stages is None else (counts.stages[0], min(most, counts.stages[1]))
        )
        if not len(table.values) or fewest > most:
            return []
        # Of a stage with so many from it on; there are others before it.
        held = [
            in_flight(self._schedule, 1, 1 + left, self._microbatches) for left in range(most + 1)
        ]
        rest, share = _least_rest(table), epsilon / (2 + epsilon)
        least = rest[0, -1] + (self._microbatches - 1) * (rest[1, -1] // self._devices)
        part = share * least / 3  # of the passes' sum, the longest and what comes once
        each = part / max(1, self._microbatches - 1) / 2
        incumbent = np.array([[p.memory, p.time] for p in known], dtype=np.int64).reshape(-1, 2)
        if problem.time_limit is not None:  # as if a pipeline without memory took so long
            limit = int(problem.time_limit * (1 + epsilon / 2))
            incumbent = np.concatenate([[[0, limit]], np.minimum(incumbent, [_NO_WAY, limit])])
        points, ends = _suffixes(
            table.begin,
            table.values,
            np.array(table.sizes, dtype=np.int64),
            np.array(held, dtype=np.int64),
            (
                self._devices,
                problem.links.machine,
                self._microbatches,
                problem.memory_limit,
                fewest,
            ),
            self._schedule == "gpipe",
            incumbent,
            rest,
            (1 + epsilon / 2, share),
            (max(1, int(part / most)), max(1, int(each)), max(1, int(part))),
        )
        if ends.size == 1 and ends[0] < 0:
            raise SearchSizeError(
                f"a search of pipelines keeps at most {_MOST_POINTS:,} points. Got more; use fewer "
                "blocks, or fewer numbers of devices of a stage."
            )
        times = points[ends, 0] + points[ends, 3]
        times += (self._microbatches - 1) * points[ends, 1:3].sum(axis=1)
        best = reduce_points(points[ends, 4], times)
        return [self._pipeline(points, int(end)) for end in ends[best]]

    def _pipeline(self, points: Int64Array, end: int) -> Pipeline:
        stages: list[Stage] = []
        place, offset = end, 0
        count = int(points[end, 7])
        while place >= 0:
            row, first, last, devices = (int(each) for each in points[place, 8:12])
            held = in_flight(self._schedule, len(stages), count, self._microbatches)
            stages.append(
                self._table.stage(self._problem, (first, last, devices), row, offset, held)
            )
            offset += devices
            place = int(points[place, 6])
        return Pipeline.of(stages, self._copies, self._microbatches, self._schedule)


def _least_rest(table: StageTable) -> Int64Array:
    """int64[2, blocks + 1]: at least the sum of the passes of stages of the first so many blocks,
    and at least that sum with each stage's times its devices; no way where nothing fits."""
    blocks = table.begin.shape[0]
    passes = table.values[:, 0] + table.values[:, 1]
    rest = np.full((2, blocks + 1), _NO_WAY, dtype=np.int64)
    rest[:, 0] = 0
    for end in range(1, blocks + 1):
        for first in range(end):
            begin = table.begin[first, end - 1].tolist()
            for low, high, devices in zip(begin[:-1], begin[1:], table.sizes, strict=True):
                if low < high:
                    least = passes[low:high].min()
                    for row, weight in enumerate((1, devices)):
                        rest[row, end] = min(rest[row, end], rest[row, first] + weight * least)
    return rest


@numba.njit(cache=True, nogil=True)
def _suffixes(
    begin: Int64Array,
    values: Int64Array,
    sizes: Int64Array,
    held: Int64Array,
    limits: tuple[int, int, int, int, int],
    gpipe: bool,
    incumbent: Int64Array,
    rest: Int64Array,
    shares: tuple[float, float],
    grid: tuple[int, int, int],
) -> tuple[Int64Array, Int64Array]:
    """Points int64[any, 12] and which of them are pipelines.

    A point: sum of passes, longest (both passes, or forward), longest backward (of GPipe, else 0),
    longest once, memory, 0; the point of the stages behind, -1 for none; number of stages; row,
    first and last block and devices of its first stage. Times and memory are rounded up, times to
    ``grid`` (of the sum, the longest and what comes once), memory by at most a share.
    """
    devices, machine, microbatches, memory_limit, fewest = limits
    blocks, most = begin.shape[0], held.size - 1
    worse, share = shares
    sum_grid, longest_grid, once_grid = grid
    pool = np.zeros((1024, 12), np.int64)
    size = 0
    start = np.zeros((most + 1, blocks + 1, devices + 1), np.int64)
    stop = np.zeros((most + 1, blocks + 1, devices + 1), np.int64)
    pool[0, 6] = -1  # no stage
    start[0, blocks, 0], stop[0, blocks, 0] = 0, 1
    size = 1
    own = np.zeros((64, 12), np.int64)
    new = np.zeros(12, np.int64)
    for left in range(1, most + 1):
        for first in range(blocks):
            for used in range(left, devices + 1):
                if (used == devices) != (first == 0) or rest[0, first] >= _NO_WAY:
                    continue
                if first == 0 and left < fewest:
                    continue
                count = 0
                flying = 1 if left == 1 and first == 0 else held[left]
                back = 1 if used % machine == 0 else 0
                for number in range(sizes.size):
                    behind = used - sizes[number]
                    if behind < left - 1:
                        break
                    # Devices are counted from the last; machines begin at multiples of it, too.
                    if sizes[number] <= machine:
                        if behind // machine != (used - 1) // machine:
                            continue
                    elif behind % machine != 0 or sizes[number] % machine != 0:
                        continue
                    on = 1 if behind % machine == 0 else 0
                    for last in range(first, blocks):
                        low, high = (
                            start[left - 1, last + 1, behind],
                            stop[left - 1, last + 1, behind],
                        )
                        if low == high:
                            continue
                        for row in range(
                            begin[first, last, number], begin[first, last, number + 1]
                        ):
                            stage = values[row]
                            if stage[7] == 1:
                                memory = stage[3] + stage[5] * flying + stage[4]
                            else:
                                memory = stage[3] + stage[4] * flying
                            if memory > memory_limit:
                                continue
                            forward = stage[0] + stage[8 + on]
                            backward = stage[1] + stage[10 + back]
                            passes = _up(forward + backward, sum_grid)
                            longer = _up(forward if gpipe else forward + backward, longest_grid)
                            back_longer = _up(backward, longest_grid) if gpipe else 0
                            once = _up(stage[2], once_grid)
                            memory = _up(memory, _power_below(share * memory))
                            for point in range(low, high):
                                new[0] = pool[point, 0] + passes
                                new[1] = max(pool[point, 1], longer)
                                new[2] = max(pool[point, 2], back_longer)
                                new[3] = max(pool[point, 3], once)
                                new[4] = max(pool[point, 4], memory)
                                longest = new[1] + new[2]
                                if used < devices:
                                    longest = max(longest, rest[1, first] // (devices - used))
                                time = new[0] + rest[0, first] + new[3]
                                time += (microbatches - 1) * longest
                                if _beaten(incumbent, new[4], worse * time):
                                    continue
                                new[6], new[7], new[8] = point, left, row
                                new[9], new[10], new[11] = first, last, sizes[number]
                                if count == own.shape[0]:
                                    own = _wider(own)
                                count = _insert(own, count, new)
                while size + count > pool.shape[0]:
                    pool = _wider(pool)
                if size + count > _MOST_POINTS:
                    return pool, np.full(1, -1, np.int64)
                start[left, first, used] = size
                for place in range(count):
                    for column in range(12):
                        pool[size, column] = own[place, column]
                    if pool[size, 6] == 0:
                        pool[size, 6] = -1
                    size += 1
                stop[left, first, used] = size
    total = 0
    for left in range(1, most + 1):
        total += stop[left, 0, devices] - start[left, 0, devices]
    ends = np.empty(total, np.int64)
    place = 0
    for left in range(1, most + 1):
        for point in range(start[left, 0, devices], stop[left, 0, devices]):
            ends[place] = point
            place += 1
    return pool, ends


@numba.njit(cache=True, nogil=True)
def _up(value: int, grid: int) -> int:
    return -(-value // grid) * grid


@numba.njit(cache=True, nogil=True)
def _power_below(value: float) -> int:
    """The greatest power of two that is at most a value; at least 1."""
    power = 1
    while 2 * power <= value:
        power *= 2
    return power


@numba.njit(cache=True, nogil=True)
def _beaten(incumbent: Int64Array, memory: int, time: float) -> bool:
    """Whether a known pipeline takes at most so much memory and time; they are by memory."""
    low, high = 0, incumbent.shape[0]
    while low < high:
        middle = (low + high) // 2
        if incumbent[middle, 0] <= memory:
            low = middle + 1
        else:
            high = middle
    return low > 0 and incumbent[low - 1, 1] <= time


@numba.njit(cache=True, nogil=True)
def _insert(own: Int64Array, count: int, new: Int64Array) -> int:
    """Add a point unless one is at least as good in all; returns how many are left."""
    for place in range(count):
        if (
            own[place, 0] <= new[0]
            and own[place, 1] <= new[1]
            and own[place, 2] <= new[2]
            and own[place, 3] <= new[3]
            and own[place, 4] <= new[4]
        ):
            return count
    kept = 0
    for place in range(count):
        worse = (
            new[0] <= own[place, 0]
            and new[1] <= own[place, 1]
            and new[2] <= own[place, 2]
            and new[3] <= own[place, 3]
            and new[4] <= own[place, 4]
        )
        if not worse:
            if kept != place:
                for column in range(12):
                    own[kept, column] = own[place, column]
            kept += 1
    for column in range(12):
        own[kept, column] = new[column]
    return kept + 1


@numba.njit(cache=True, nogil=True)
def _wider(points: Int64Array) -> Int64Array:
    wide = np.zeros((2 * points.shape[0], points.shape[1]), np.int64)
    for row in range(points.shape[0]):
        for column in range(points.shape[1]):
            wide[row, column] = points[row, column]
    return wide
