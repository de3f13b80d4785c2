"""The points of all possible stages, as arrays for dynamic programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.stages.pipeline import PipelineProblem, Stage
from tensoropt.pipeline.stages.points import StagePoints
from tensoropt.pipeline.stages.unlike_devices import Placement, StageKind

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
    """The points of all stages, by first block, last block, and number and kind of devices.

    A variant is a number of devices of one kind.

    Attributes:
        sizes: the numbers of devices of the variants, ascending.
        begin: int64[blocks, blocks, variants + 1], by first and last block: the row at which the
            points of each variant begin; last the row at which all points end.
        values: int64[points, 12], the rows; `stage_rows` describes them.
        kinds: the kinds of the variants; None if all devices are alike.
    """

    sizes: tuple[int, ...]
    begin: Int64Array
    values: Int64Array
    kinds: tuple[StageKind | None, ...]

    @classmethod
    def of(
        cls,
        problem: PipelineProblem,
        sizes: Sequence[int],
        microbatch: int,
        copies: int,
        recompute: Sequence[bool],
        placements: Sequence[Placement] = (),
    ) -> StageTable:
        """Ask the problem's profiles for the points of all stages.

        Args:
            problem: the blocks and their profiles.
            sizes: the numbers of devices of a stage.
            microbatch: the examples of a microbatch.
            copies: the copies of the whole pipeline.
            recompute: whether a stage recomputes; with both, each stage has both points.
            placements: the orders of devices that differ; none if all are alike.
        """
        variants: list[tuple[int, StageKind | None]] = [(size, None) for size in sizes]
        if placements:
            variants = [
                (size, kind)
                for size in sizes
                for kind in sorted({kind for each in placements for kind in each.kinds_of(size)})
            ]
        begin = np.zeros((problem.blocks, problem.blocks, len(variants) + 1), dtype=np.int64)
        stages: list[tuple[StagePoints, int]] = []
        total = 0
        for first in range(problem.blocks):
            for last in range(first, problem.blocks):
                for number, (devices, kind) in enumerate(variants):
                    begin[first, last, number] = total
                    profile = problem.profile_of(kind)
                    points = profile(first, last, devices, microbatch, copies)
                    if points is not None:
                        stages.append((points, devices))
                        total += len(points) * len(recompute)
                begin[first, last, -1] = total
        values = _rows(problem.links, stages, recompute)
        of_size, kinds = zip(*variants, strict=True) if variants else ((), ())
        return cls(of_size, begin, np.ascontiguousarray(values), kinds)


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
    return _rows(problem.links, [(points, devices)], [recompute])


def _rows(
    links: Links, stages: Sequence[tuple[StagePoints, int]], recompute: Sequence[bool]
) -> Int64Array:
    """Return int64[points, 12]: the `stage_rows` of several stages, one stage after the other.

    Args:
        links: the links between stages.
        stages: the points and the devices of each stage.
        recompute: the variants of a stage; its rows have all points of the first variant first.
    """
    blocks = [(points, devices, again) for points, devices in stages for again in recompute]
    if not blocks:
        return np.zeros((0, _COLUMNS), dtype=np.int64)
    counts = [len(points) for points, _, _ in blocks]
    values = np.concatenate([points.values for points, _, _ in blocks])
    devices, again = (
        np.repeat(np.array(column, dtype=np.int64), counts)
        for column in ([size for _, size, _ in blocks], [flag for _, _, flag in blocks])
    )
    rows = np.zeros((len(values), _COLUMNS), dtype=np.int64)
    rows[:, : INPUTS + 1] = values[:, : INPUTS + 1]
    rows[:, BACKWARD] += again * rows[:, FORWARD]
    rows[:, POINT] = np.concatenate([np.arange(count) for count in counts])
    rows[:, RECOMPUTES] = again
    # Between machines, tensors that pass the stage use its link, too.
    within_machine, between_machines = values[:, 6:10], values[:, 6:10] + values[:, 10:]
    for way in range(2):
        for across, sent in enumerate((within_machine, between_machines)):
            rows[:, SENDING + 2 * way + across] = links.sends_nanoseconds(
                sent[:, way], devices, bool(across), sent[:, 2 + way]
            )
    return rows
