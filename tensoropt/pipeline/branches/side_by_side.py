"""Two sides of a step at once, each on devices of its own, and the rest after them.

The first side is a stage; the second one and the rest, which reads both, are another. There is one
microbatch.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from tensoropt.pipeline.split.profile import SplitProfile
from tensoropt.pipeline.stages.pipeline import Pipeline, PipelineProblem, Stage
from tensoropt.pipeline.stages.table import stage_of, stage_rows
from tensoropt.search.pareto.reduce import reduce_points

__all__ = ["pipelines_side_by_side"]


def pipelines_side_by_side(
    problem: PipelineProblem, profile: SplitProfile, devices: tuple[int, int]
) -> list[Pipeline]:
    """Those that no other beats in time and memory, by ascending memory.

    Args:
        problem: of three blocks, the sides and the rest, or without a rest.
        profile: of these.
        devices: of each side.
    """
    last = problem.blocks - 1
    one = _ways(problem, profile, (0, 0, devices[0]), 0)
    other = _ways(problem, profile, (1, last, devices[1]), devices[0])
    if not one or not other:
        return []
    beside = profile.part((1, last), (1, 1), devices[1], problem.batch).values[:, :2].tolist()
    every = [
        Pipeline.side_by_side((first, second), *beside[second.point])
        for first, second in product(one, other)
    ]
    memory = np.array([each.memory for each in every], np.int64)
    time = np.array([each.time for each in every], np.int64)
    return [every[place] for place in reduce_points(memory, time).tolist()]


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
