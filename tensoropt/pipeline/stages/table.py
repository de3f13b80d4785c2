"""The points of all stages that consecutive blocks can be, as arrays for dynamic programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.pipeline.stages.pipeline import PipelineProblem, Stage
from tensoropt.pipeline.stages.points import StagePoints

__all__ = ["StageTable", "held_bytes", "stage_of", "stage_rows"]


@dataclass(frozen=True, slots=True, eq=False)
class StageTable:
    """Points by first and last block and number of devices.

    Attributes:
        sizes: numbers of devices of a stage, ascending.
        begin: int64[blocks, blocks, sizes + 1]: where the points of blocks ``first`` to ``last``
            on each number of devices begin, and where the last of them end.
        values: int64[points, 12], `stage_rows` of all of them.
    """

    sizes: tuple[int, ...]
    begin: Int64Array
    values: Int64Array

    @classmethod
    def of(
        cls,
        problem: PipelineProblem,
        sizes: Sequence[int],
        microbatch: int,
        copies: int,
        recompute: Sequence[bool],
    ) -> StageTable:
        """Ask for all stages.

        Args:
            problem: the blocks.
            sizes: numbers of devices of a stage.
            microbatch: examples of one.
            copies: of the whole pipeline.
            recompute: whether stages may keep all, only inputs, or either.
        """
        begin = np.zeros((problem.blocks, problem.blocks, len(sizes) + 1), dtype=np.int64)
        found: list[Int64Array] = []
        total = 0
        for first in range(problem.blocks):
            for last in range(first, problem.blocks):
                for number, devices in enumerate(sizes):
                    begin[first, last, number] = total
                    points = problem.profile(first, last, devices, microbatch, copies)
                    if points is not None:
                        found += [
                            stage_rows(problem, points, devices, again) for again in recompute
                        ]
                        total += len(points) * len(recompute)
                begin[first, last, -1] = total
        values = np.concatenate(found) if found else np.zeros((0, 12), dtype=np.int64)
        return cls(tuple(sizes), begin, np.ascontiguousarray(values))

    def stage(
        self,
        problem: PipelineProblem,
        place: tuple[int, int, int],
        row: int,
        offset: int,
        held: int,
    ) -> Stage:
        """`stage_of` a row of the table."""
        return stage_of(problem, self.values[row], place, offset, held)


def stage_of(
    problem: PipelineProblem,
    values: Int64Array,
    place: tuple[int, int, int],
    offset: int,
    held: int,
) -> Stage:
    """A stage as it lies in a pipeline.

    Args:
        problem: the blocks.
        values: one of `stage_rows`.
        place: first and last block, number of devices.
        offset: devices before the stage.
        held: microbatches in flight.
    """
    first, last, devices = place
    row = [int(each) for each in values]
    machine = problem.links.machine
    on, back = (offset + devices) % machine == 0, offset % machine == 0
    return Stage(
        first,
        last,
        devices,
        row[6],
        bool(row[7]),
        row[0] + row[8 + on],
        row[1] + row[10 + back],
        row[2],
        held_bytes(row, held),
    )


def held_bytes(values: Sequence[int], held: int) -> int:
    """Bytes of a row with so many microbatches in flight; of those that are computed again one at
    a time is whole."""
    if values[7]:
        return values[3] + values[5] * held + values[4]
    return values[3] + values[4] * held


def stage_rows(
    problem: PipelineProblem, points: StagePoints, devices: int, recompute: bool
) -> Int64Array:
    """int64[points, 12]: points of a stage as they run, with or without recomputation: forward and
    backward time, once, fixed, saved and input bytes, the point's number, whether it recomputes;
    what sending on takes within a machine and to another one, and the same of sending back."""
    links, values = problem.links, points.values
    sent, passed = values[:, 6:10], values[:, 10:]
    rows = np.zeros((len(points), 12), dtype=np.int64)
    rows[:, :6] = values[:, :6]
    if recompute:
        rows[:, 1] += values[:, 0]
    rows[:, 6], rows[:, 7] = np.arange(len(points)), recompute
    rows[:, 8:] = [
        [
            links.send_nanoseconds(amounts[way], devices, bool(across), amounts[2 + way])
            for way in range(2)
            for across, amounts in enumerate((own, all_))
        ]
        for own, all_ in zip(sent.tolist(), (sent + passed).tolist(), strict=True)
    ]
    return rows
