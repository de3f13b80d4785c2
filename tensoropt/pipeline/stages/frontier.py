"""The frontier of step time and memory over all pipelines of a model's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tensoropt.arrays import BoolArray, Int64Array
from tensoropt.errors import InfeasibleError, SearchSizeError
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem, Stage
from tensoropt.pipeline.stages.suffixes import (
    DEVICES,
    FIRST,
    LAST,
    LONGEST,
    LONGEST_BACKWARD,
    LONGEST_ONCE,
    MEMORY,
    MOST_POINTS,
    NEXT,
    NO_WAY,
    PASSES,
    ROW,
    STAGES,
    Limits,
    Tables,
    pipeline_suffixes,
)
from tensoropt.pipeline.stages.table import BACKWARD, FORWARD, StageTable, stage_of
from tensoropt.pipeline.stages.unlike_devices import Placement
from tensoropt.search.pareto.reduce import reduce_points
from tensoropt.search.watch import seconds_left
from tensoropt.transformations.staged.order_of_passes import SCHEDULES, Schedule, in_flight

__all__ = ["Counts", "pipeline_frontier", "stage_sizes"]

_UNIT = 2**50
"""Bytes of which the share that counts is computed."""


def pipeline_frontier(
    problem: PipelineProblem,
    schedules: Sequence[Schedule] = SCHEDULES,
    recompute: Sequence[bool] = (False, True),
    sizes: Sequence[int] | None = None,
    epsilon: float = 0.0,
    known: Sequence[Pipeline] = (),
    counts: Counts | None = None,
    is_needed: bool = False,
) -> tuple[Pipeline, ...]:
    """Return the pipelines that no other beats in both time and memory, by ascending memory.

    All combinations are searched: numbers of stages; numbers of copies, which divide the machines;
    numbers of microbatches, which are powers of two; schedules; and for each stage its number of
    devices, its points, and whether it recomputes. A stage lies within a machine or has whole
    machines. With one stage, microbatches accumulate gradients.

    For each number of copies, number of microbatches and schedule there is one dynamic program, in
    `suffixes.py`. It begins with the last stage, because the microbatches in flight of a stage
    follow from the number of stages behind it. State: (stages, first block, devices). A state keeps
    the points that no other beats in all amounts from which a step's time and memory are computed
    (`step_nanoseconds`): the sum of passes, the longest passes, the longest time once per step, and
    memory. These amounts only grow. So a point is dropped if a known pipeline beats its lower
    bound. The bound adds the least passes of the blocks before the point, and assumes that their
    devices share these passes evenly.

    Where a pipeline is known, or none is needed and the problem has a time to undercut, the search
    ends when the time of the current `Watch` is over. Then pipelines of many stages may be missing.

    If devices differ, there is one such program for each order in which stages take them
    (`UnlikeDevices.placements`). A stage is as fast as its slowest device.

    Args:
        problem: the blocks and devices.
        schedules: the schedules that are searched.
        recompute: whether stages recompute: never (``(False,)``), always, or both are tried.
        sizes: the numbers of devices that a stage may have; by default `stage_sizes`.
        epsilon: the most that the frontier may be away from the exact one: for every pipeline it
            has one of at most 1 + ``epsilon`` times its memory and 1 + ``epsilon`` times its time.
        known: pipelines of this problem that are known before the search.
        counts: the numbers of stages, microbatches and copies; by default all are searched.
        is_needed: whether time alone does not end the search before a pipeline is known.

    Raises:
        InfeasibleError: if no pipeline is within the limits, or time is over before one is found.
        SearchSizeError: if the search would keep too many points.
    """
    machine = problem.links.machine
    known, counts = _reduced(list(known)), counts or Counts()
    for machines in (n for n in range(1, problem.machines + 1) if problem.machines % n == 0):
        copies, devices = problem.machines // machines, machines * machine
        if counts.copies is not None and copies not in counts.copies:
            continue
        fitting = [size for size in (sizes or stage_sizes(machine, machines)) if size <= devices]
        placements = () if problem.unlike is None else problem.unlike.placements(copies)
        for microbatches in counts.of_microbatches(problem.batch // copies):
            microbatch = problem.batch // copies // microbatches
            table = StageTable.of(problem, fitting, microbatch, copies, recompute, placements)
            for schedule, placement in product(schedules, placements or (None,)):
                search = _Search(problem, table, placement, devices, copies, microbatches, schedule)
                may_end = bool(known) or not (is_needed or problem.time_limit is None)
                known = _reduced([*known, *search.pipelines(known, epsilon, counts, may_end)])
    if not known:
        limit = problem.time_limit
        raise InfeasibleError(
            f"a pipeline fits {problem.memory_limit} bytes of each device"
            f"{'' if limit is None else f' and {limit} ns'}. Got {problem.blocks} blocks on "
            f"{problem.devices} devices, of which no pipeline fits; use more devices, a smaller "
            "batch or more blocks."
        )
    return tuple(known)


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers that are searched; None stands for all numbers.

    Attributes:
        stages: the fewest and the most stages.
        microbatches: the numbers of microbatches of a copy.
        copies: the numbers of copies of the whole pipeline.
    """

    stages: tuple[int, int] | None = None
    microbatches: Sequence[int] | None = None
    copies: Sequence[int] | None = None

    def of_microbatches(self, examples: int) -> list[int]:
        """Return the numbers of microbatches that leave each at least one of the examples."""
        if self.microbatches is None:
            return [1 << n for n in range(examples.bit_length())]
        return [count for count in self.microbatches if count <= examples]


def stage_sizes(machine: int, machines: int) -> tuple[int, ...]:
    """Return the numbers of devices that a stage may have by default.

    These are the divisors of a machine's devices; 1, 2, 4, ... whole machines; and all machines.
    """
    parts = [n for n in range(1, machine + 1) if machine % n == 0]
    whole = [machine << n for n in range(machines.bit_length()) if 1 << n <= machines]
    return tuple(sorted({*parts, *whole, machine * machines}))


def _reduced(pipelines: list[Pipeline]) -> list[Pipeline]:
    """Return the pipelines that no other beats, by ascending memory."""
    memory = np.array([pipeline.memory for pipeline in pipelines], dtype=np.int64)
    time = np.array([pipeline.time for pipeline in pipelines], dtype=np.int64)
    return [pipelines[place] for place in reduce_points(memory, time)]


class _Search:
    """The search of pipelines with one number of copies and microbatches, and one schedule."""

    def __init__(
        self,
        problem: PipelineProblem,
        table: StageTable,
        placement: Placement | None,
        devices: int,
        copies: int,
        microbatches: int,
        schedule: Schedule,
    ) -> None:
        self._problem, self._table, self._devices = problem, table, devices
        self._placement = placement
        self._copies, self._microbatches, self._schedule = copies, microbatches, schedule

    def pipelines(
        self, known: Sequence[Pipeline], epsilon: float, counts: Counts, may_end: bool
    ) -> list[Pipeline]:
        """Return the pipelines that no known one beats.

        Half of epsilon is for dropping points that a known pipeline almost beats, the other half
        for rounding times and memory. If the search ``may_end``, it ends when time is over.
        """
        table, most = self._table, min(self._problem.blocks, self._devices)
        fewest, most = (
            (1, most) if counts.stages is None else (counts.stages[0], min(most, counts.stages[1]))
        )
        if not len(table.values) or fewest > most:
            return []
        tables = self._tables(known, epsilon, most)
        points, ends = pipeline_suffixes(
            tables,
            self._limits(tables.rest, epsilon, fewest, most),
            lambda: may_end and not seconds_left(),
        )
        if ends.size == 1 and ends[0] < 0:
            raise SearchSizeError(
                f"a search of pipelines keeps at most {MOST_POINTS:,} points. Got more; use fewer "
                "blocks, or fewer numbers of devices of a stage."
            )
        longest = points[ends, LONGEST] + points[ends, LONGEST_BACKWARD]
        times = points[ends, PASSES] + points[ends, LONGEST_ONCE]
        times += (self._microbatches - 1) * longest
        best = reduce_points(points[ends, MEMORY], times)
        return [self._pipeline(points, int(end)) for end in ends[best]]

    def _tables(self, known: Sequence[Pipeline], epsilon: float, most: int) -> Tables:
        """Return the arrays of the search, for at most ``most`` stages."""
        table, time_limit = self._table, self._problem.time_limit
        held = [
            in_flight(self._schedule, 1, 1 + stages, self._microbatches)
            for stages in range(most + 1)
        ]
        incumbent = np.array([[p.memory, p.time] for p in known], dtype=np.int64).reshape(-1, 2)
        if time_limit is not None:  # counts as a known pipeline that needs no memory
            limit = int(time_limit * (1 + epsilon / 2))
            incumbent = np.concatenate([[[0, limit]], np.minimum(incumbent, [NO_WAY, limit])])
        return Tables(
            table.begin,
            table.values,
            np.array(table.sizes, dtype=np.int64),
            np.array(held, dtype=np.int64),
            incumbent,
            _least_rest(table),
            self._fits(),
            np.array([self._problem.counted_bytes(_UNIT, kind) / _UNIT for kind in table.kinds]),
        )

    def _fits(self) -> BoolArray:
        """Return `Tables.fits`: a variant fits where its devices are of its kind."""
        table, placement, total = self._table, self._placement, self._devices
        fits = np.ones((total, len(table.sizes)), np.bool_)
        if placement is not None:
            for number, (devices, kind) in enumerate(zip(table.sizes, table.kinds, strict=True)):
                for behind in range(total - devices + 1):
                    first = total - behind - devices
                    fits[behind, number] = placement.kind_of(first, devices) == kind
        return fits

    def _limits(self, rest: Int64Array, epsilon: float, fewest: int, most: int) -> Limits:
        """Return the numbers of the search.

        The rounding error that epsilon allows for time is divided evenly among its three terms: the
        sum of passes, the longest passes, and the longest time once per step.
        """
        share = epsilon / (2 + epsilon)
        least_time = rest[0, -1] + (self._microbatches - 1) * (rest[1, -1] // self._devices)
        error = share * least_time / 3
        longest_error = error / max(1, self._microbatches - 1) / 2
        return Limits(
            self._devices,
            self._problem.links.machine,
            self._microbatches,
            self._problem.memory_limit,
            fewest,
            gpipe=self._schedule == "gpipe",
            worse=1 + epsilon / 2,
            share=share,
            sum_grid=max(1, int(error / most)),
            longest_grid=max(1, int(longest_error)),
            once_grid=max(1, int(error)),
        )

    def _pipeline(self, points: Int64Array, end: int) -> Pipeline:
        """Return the pipeline that begins with a point."""
        stages: list[Stage] = []
        placement = self._placement
        place, offset, memory = end, 0, 0
        count = int(points[end, STAGES])
        while place >= 0:
            first, last, devices, row = points[place, [FIRST, LAST, DEVICES, ROW]].tolist()
            held = in_flight(self._schedule, len(stages), count, self._microbatches)
            values = self._table.values[row]
            stages.append(stage_of(self._problem, values, (first, last, devices), offset, held))
            kind = None if placement is None else placement.kind_of(offset, devices)
            memory = max(memory, self._problem.counted_bytes(stages[-1].memory, kind))
            offset += devices
            place = int(points[place, NEXT])
        order = () if placement is None else placement.order
        return Pipeline.of(stages, self._copies, self._microbatches, self._schedule, memory, order)


def _least_rest(table: StageTable) -> Int64Array:
    """Return `Tables.rest`, by dynamic programming over the last stage of the blocks."""
    blocks = table.begin.shape[0]
    passes = table.values[:, FORWARD] + table.values[:, BACKWARD]
    rest = np.full((2, blocks + 1), NO_WAY, dtype=np.int64)
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
