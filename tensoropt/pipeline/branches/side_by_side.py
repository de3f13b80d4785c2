"""A division of devices among branches, as a pipeline whose stages run at the same time.

Each side of the division is a stage, and each piece of a side is a block. There is one microbatch.
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
from tensoropt.transformations.staged.simulated_time import StagePart

__all__ = ["blocks_of", "in_order", "pipelines_side_by_side"]


def in_order(
    sides: Sequence[Side], edges: Sequence[tuple[int, int]], machine: int
) -> tuple[Side, ...] | None:
    """Return the sides in an order in which each side reads from earlier sides alone.

    In this order every side also lies within a machine or has whole machines. The search for an
    order is greedy: it takes the largest side that can come next.

    Args:
        sides: the sides of a division, in any order.
        edges: (from, to) between components.
        machine: the devices of a machine.

    Returns:
        The ordered sides; None if the greedy search finds no order.
    """
    piece_of = places_of_pieces(sides)
    needed: list[set[int]] = [set() for _ in sides]
    for source, target in edges:
        if piece_of[source][0] != piece_of[target][0]:
            needed[piece_of[target][0]].add(piece_of[source][0])
    waiting, order, offset = list(range(len(sides))), list[int](), 0
    waiting.sort(key=lambda number: -sides[number].devices)
    while waiting:
        ready = [side for side in waiting if needed[side] <= set(order)]
        aligned = [side for side in ready if _is_aligned(offset, sides[side].devices, machine)]
        if not aligned:
            return None
        order.append(aligned[0])
        waiting.remove(aligned[0])
        offset += sides[aligned[0]].devices
    return tuple(sides[number] for number in order)


def places_of_pieces(sides: Sequence[Side]) -> dict[int, tuple[int, int]]:
    """Return for each component the number of its side, and that of its piece in the side."""
    return {
        component: (number, place)
        for number, side in enumerate(sides)
        for place, piece in enumerate(side.pieces)
        for component in piece
    }


def blocks_of(sides: Sequence[Side], components: int) -> Int64Array:
    """Return int64[components]: the block of each component. Blocks are the pieces, in order."""
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
    """Return the pipelines that no other beats in time and memory, by ascending memory.

    For each memory that a point of a stage needs, a pipeline takes the fastest points of all stages
    within this memory.

    Args:
        problem: its blocks are the pieces of the sides.
        profile: gives the costs of these blocks.
        sides: in the order of `in_order`.
        edges: (from, to) between blocks.
    """
    variants: list[list[Stage]] = []
    offset = first = 0
    for side in sides:
        last = first + len(side.pieces) - 1
        variants.append(_variants(problem, profile, (first, last, side.devices), offset))
        first, offset = last + 1, offset + side.devices
    if not all(variants):
        return []
    numbers = [(stage, n) for stage, side in enumerate(sides) for n in range(len(side.pieces))]
    crossing = [(a, b) for a, b in edges if numbers[a][0] != numbers[b][0]]
    pipelines = []
    for memory in sorted({stage.memory for stages in variants for stage in stages}):
        fitting = [[stage for stage in stages if stage.memory <= memory] for stages in variants]
        if all(fitting):
            fastest = [min(stages, key=_time) for stages in fitting]
            parts = [_parts(problem, profile, stage, numbers, crossing) for stage in fastest]
            pipelines.append(Pipeline.side_by_side(fastest, parts))
    memories = np.array([pipeline.memory for pipeline in pipelines], np.int64)
    times = np.array([pipeline.time for pipeline in pipelines], np.int64)
    return [pipelines[place] for place in reduce_points(memories, times).tolist()]


def _is_aligned(offset: int, devices: int, machine: int) -> bool:
    """Whether devices lie within a machine or are whole machines."""
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
) -> list[StagePart]:
    """Return the parts of a stage, one for each of its blocks.

    The time to send values is counted with the first part that another stage reads. The time to
    send gradients is counted with the last part that reads another stage, whose backward pass comes
    first.
    """
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
        StagePart(
            max(0, int(forward)),
            max(0, int(backward)),
            tuple(sorted({numbers[source] for source, target in crossing if target == block})),
        )
        for block, (forward, backward) in zip(blocks, times, strict=True)
    ]


def _variants(
    problem: PipelineProblem, profile: SplitProfile, place: tuple[int, int, int], offset: int
) -> list[Stage]:
    """Return a stage at each of its points.

    Args:
        problem: the blocks and devices.
        profile: gives the points.
        place: the first block, the last block and the number of devices.
        offset: the number of devices before the stage.
    """
    points = profile(*place, problem.batch, 1)
    if points is None:
        return []
    rows = stage_rows(problem, points, place[2], recompute=False)
    return [stage_of(problem, row, place, offset, held=1) for row in rows]
