"""The points of all possible stages, as arrays for dynamic programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.pipeline.stages.pipeline import PipelineProblem, Stage
from tensoropt.pipeline.stages.points import StagePoints

__all__ = [
    *("BACKWARD", "FORWARD", "ONCE", "SENDING", "SENDING_BACK"),
    *("StageTable", "held_bytes", "stage_of", "stage_rows"),
]

FORWARD, BACKWARD, ONCE, FIXED, SAVED, INPUTS, POINT, RECOMPUTES, SENDING = range(9)
SENDING_BACK = 10
"""Columns of `stage_rows`. ``SENDING`` and ``SENDING_BACK`` have two columns each: to a stage of
the same machine, and to a stage of another one."""
_COLUMNS = 12


@dataclass(frozen=True, slots=True, eq=False)
class StageTable:
    """The points of all stages, by first block, last block and number of devices.

    Attributes:
        sizes: the numbers of devices of a stage, ascending.
        begin: int64[blocks, blocks, sizes + 1], by first and last block: the row at which the
            points of each number of devices begin; last the row at which all points end.
        values: int64[points, 12], the rows; `stage_rows` describes them.
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
        """Ask the problem's profile for the points of all stages.

        Args:
            problem: the blocks and their profile.
            sizes: the numbers of devices of a stage.
            microbatch: the examples of a microbatch.
            copies: the copies of the whole pipeline.
            recompute: for each variant of a stage, whether it recomputes.
        """
        begin = np.zeros((problem.blocks, problem.blocks, len(sizes) + 1), dtype=np.int64)
        rows: list[Int64Array] = []
        total = 0
        for first in range(problem.blocks):
            for last in range(first, problem.blocks):
                for number, devices in enumerate(sizes):
                    begin[first, last, number] = total
                    points = problem.profile(first, last, devices, microbatch, copies)
                    if points is not None:
                        rows += [stage_rows(problem, points, devices, again) for again in recompute]
                        total += len(points) * len(recompute)
                begin[first, last, -1] = total
        values = np.concatenate(rows) if rows else np.zeros((0, _COLUMNS), dtype=np.int64)
        return cls(tuple(sizes), begin, np.ascontiguousarray(values))


def stage_of(
    problem: PipelineProblem,
    values: Int64Array,
    place: tuple[int, int, int],
    offset: int,
    held: int,
) -> Stage:
    """Return the stage of a row at its place in a pipeline.

    Args:
        problem: the blocks and devices.
        values: int64[12], one of `stage_rows`.
        place: the first block, the last block and the number of devices.
        offset: the number of devices before the stage.
        held: the number of microbatches in flight.
    """
    first, last, devices = place
    row = [int(value) for value in values]
    machine = problem.links.machine
    crosses_end, crosses_begin = (offset + devices) % machine == 0, offset % machine == 0
    return Stage(
        first,
        last,
        devices,
        row[POINT],
        bool(row[RECOMPUTES]),
        row[FORWARD] + row[SENDING + crosses_end],
        row[BACKWARD] + row[SENDING_BACK + crosses_begin],
        row[ONCE],
        int(held_bytes(values, held)),
    )


@numba.njit(cache=True, nogil=True)
def held_bytes(row: Int64Array, held: int) -> int:
    """Return the bytes of a device of a stage with ``held`` microbatches in flight.

    With recomputation, the inputs of all of them are held, and the saved tensors of one.
    """
    memory: int = row[FIXED] + row[SAVED] * held
    if row[RECOMPUTES]:
        memory = row[FIXED] + row[INPUTS] * held + row[SAVED]
    return memory


def stage_rows(
    problem: PipelineProblem, points: StagePoints, devices: int, recompute: bool
) -> Int64Array:
    """Return int64[points, 12]: the points of a stage, with or without recomputation.

    The columns are forward, backward and once-per-step nanoseconds; fixed, saved and input bytes;
    the number of the point; whether it recomputes; the nanoseconds of sending values to a stage of
    the same machine, and to one of another machine; and the same two of sending gradients back.
    """
    links, values = problem.links, points.values
    sent, passed = values[:, 6:10], values[:, 10:]
    rows = np.zeros((len(points), _COLUMNS), dtype=np.int64)
    rows[:, : INPUTS + 1] = values[:, : INPUTS + 1]
    if recompute:
        rows[:, BACKWARD] += values[:, FORWARD]
    rows[:, POINT], rows[:, RECOMPUTES] = np.arange(len(points)), recompute
    # Between machines, tensors that pass the stage use its link, too.
    rows[:, SENDING:] = [
        [
            links.send_nanoseconds(amounts[way], devices, bool(across), amounts[2 + way])
            for way in range(2)
            for across, amounts in enumerate((within_machine, between_machines))
        ]
        for within_machine, between_machines in zip(
            sent.tolist(), (sent + passed).tolist(), strict=True
        )
    ]
    return rows
