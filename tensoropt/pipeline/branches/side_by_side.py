"""A division of devices among branches as a pipeline of stages that run at once.

Each side is a stage, and each of its pieces a block. There is one microbatch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.pipeline.branches.divisions import Side
from tensoropt.pipeline.split.profile import SplitProfile
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem, Stage
from tensoropt.pipeline.stages.table import stage_of, stage_rows
from tensoropt.search.pareto.reduce import reduce_points
from tensoropt.transformations.staged.schedule import Part

__all__ = ["blocks_of", "in_order", "pipelines_side_by_side"]


def in_order(
    sides: Sequence[Side], edges: Sequence[tuple[int, int]], machine: int
) -> tuple[Side, ...] | None:
    """The sides as stages, each of which reads earlier ones alone and lies within a machine or has
    whole ones; None where no such order is found.

    Args:
        sides: in any order.
        edges: (from, to) between components.
        machine: devices of one.
    """
    side_of = {
        place: number for number, side in enumerate(sides) for own in side.pieces for place in own
    }
    needed: list[set[int]] = [set() for _ in sides]
    for source, target in edges:
        if side_of[source] != side_of[target]:
            needed[side_of[target]].add(side_of[source])
    waiting, found, offset = list(range(len(sides))), list[int](), 0
    waiting.sort(key=lambda number: -sides[number].devices)
    while waiting:
        ready = [each for each in waiting if needed[each] <= set(found)]
        aligned = [each for each in ready if _fits(offset, sides[each].devices, machine)]
        if not aligned:
            return None
        found.append(aligned[0])
        waiting.remove(aligned[0])
        offset += sides[aligned[0]].devices
    return tuple(sides[number] for number in found)


def blocks_of(sides: Sequence[Side], components: int) -> Int64Array:
    """int64[components]: the block of each, by sides in order and their pieces."""
    block = np.zeros(components, np.int64)
    pieces = [piece for side in sides for piece in side.pieces]
    for number, piece in enumerate(pieces):
        block[list(piece)] = number
    return block


def pipelines_side_by_side(
    problem: PipelineProblem,
    profile: SplitProfile,
    sides: Sequence[Side],
    edges: Sequence[tuple[int, int]],
) -> list[Pipeline]:
    """Pipelines that no other beats in time and memory, by ascending memory.

    For each amount of memory that a stage may take, all stages take their fastest points within.

    Args:
        problem: of blocks that are the pieces.
        profile: of these.
        sides: `in_order`.
        edges: (from, to) between blocks.
    """
    places: list[tuple[int, int, int]] = []
    ways: list[list[Stage]] = []
    offset = first = 0
    for side in sides:
        last = first + len(side.pieces) - 1
        places.append((first, last, side.devices))
        ways.append(_ways(problem, profile, places[-1], offset))
        first, offset = last + 1, offset + side.devices
    if not all(ways):
        return []
    numbers = [(stage, n) for stage, side in enumerate(sides) for n in range(len(side.pieces))]
    crossing = [(a, b) for a, b in edges if numbers[a][0] != numbers[b][0]]
    every = []
    for memory in sorted({each.memory for own in ways for each in own}):
        fitting = [[each for each in own if each.memory <= memory] for own in ways]
        if all(fitting):
            stages = [min(own, key=_time) for own in fitting]
            parts = [_parts(problem, profile, stage, numbers, crossing) for stage in stages]
            every.append(Pipeline.side_by_side(stages, parts))
    memories = np.array([each.memory for each in every], np.int64)
    times = np.array([each.time for each in every], np.int64)
    return [every[place] for place in reduce_points(memories, times).tolist()]


def _fits(offset: int, devices: int, machine: int) -> bool:
    if devices >= machine:
        return offset % machine == 0
    return offset // machine == (offset + devices - 1) // machine


def _time(stage: Stage) -> int:
    return stage.forward + stage.backward + stage.once


def _parts(
    problem: PipelineProblem,
    profile: SplitProfile,
    stage: Stage,
    numbers: Sequence[tuple[int, int]],
    crossing: Sequence[tuple[int, int]],
) -> list[Part]:
    """The parts of a stage. Values are sent behind the first part that others read, and gradients
    behind the last that reads others, which goes back first."""
    blocks = range(stage.first, stage.last + 1)
    times = [
        profile.part(
            (stage.first, stage.last), (block, block), stage.devices, problem.batch
        ).values[stage.point, :2]
        for block in blocks
    ]
    sending = [stage.forward, stage.backward] - np.sum(times, 0)
    read = [block for block in blocks if any(source == block for source, _ in crossing)]
    reading = [block for block in blocks if any(target == block for _, target in crossing)]
    times[(read or [stage.last])[0] - stage.first][0] += sending[0]
    times[(reading or [stage.first])[-1] - stage.first][1] += sending[1]
    return [
        Part(
            max(0, int(forward)),
            max(0, int(backward)),
            tuple(sorted({numbers[source] for source, target in crossing if target == block})),
        )
        for block, (forward, backward) in zip(blocks, times, strict=True)
    ]


def _ways(
    problem: PipelineProblem, profile: SplitProfile, place: tuple[int, int, int], offset: int
) -> list[Stage]:
    """A stage at each of its points: its first and last block and number of devices, and how many
    devices are before it."""
    points = profile(*place, problem.batch, 1)
    if points is None:
        return []
    rows = stage_rows(problem, points, place[2], recompute=False)
    return [stage_of(problem, row, place, offset, held=1) for row in rows]
