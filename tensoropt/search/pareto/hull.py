"""The lower hull of points."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array

__all__ = ["hull_of", "hull_slopes"]

_Cost = tuple[int, int]
"""Memory and time."""


def hull_of(memory: Int64Array, time: Int64Array) -> list[int]:
    """Return the numbers of the points at the corners of a frontier's lower left hull."""
    costs = list(zip(memory.tolist(), time.tolist(), strict=True))

    def is_below(one: _Cost, cost: _Cost, other: _Cost) -> bool:
        wide, high = other[0] - one[0], one[1] - other[1]
        return high * (cost[0] - one[0]) + wide * (cost[1] - one[1]) < 0

    hull: list[int] = []
    for number, cost in enumerate(costs):
        while len(hull) > 1 and not is_below(costs[hull[-2]], costs[hull[-1]], cost):
            hull.pop()
        hull.append(number)
    return hull


def hull_slopes(memory: Int64Array, time: Int64Array) -> Float64Array:
    """Return the nanoseconds per byte along the lower hull of a frontier, the steepest first."""
    corner = hull_of(memory, time)
    slopes: Float64Array = -np.diff(time[corner]) / np.diff(memory[corner])
    return slopes
