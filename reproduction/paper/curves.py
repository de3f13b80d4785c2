"""The shape of cost frontiers: turning points, and which of two frontiers lies above."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int64Array

__all__ = ["TurningPoint", "time_at", "times_above", "turning_point"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TurningPoint:
    """Where a frontier turns from steep to flat.

    Attributes:
        index: of the point.
        depth: how far it lies below the chord from the first point to the last, when both axes
            run from 0 to 1 over the frontier: 0 for a straight line, 1 for a right angle.
        rise: by which share of the fastest time the time rises to the left of it.
        fall: by which share of the fastest time it still falls to the right of it.
    """

    index: int
    depth: float
    rise: float
    fall: float


def turning_point(memory: Int64Array, time: Int64Array) -> TurningPoint | None:
    """The point of a frontier farthest below the chord from its first point to its last.

    Args:
        memory: int64[P], strictly ascending.
        time: int64[P], strictly descending.

    Returns:
        None if the frontier has fewer than three points, or none is below the chord.
    """
    if memory.size < 3:
        return None
    across, down = int(memory[-1] - memory[0]), int(time[0] - time[-1])
    left, below = (memory - memory[0]).astype(object), (time - time[-1]).astype(object)
    depth = across * down - left * down - below * across  # Python's integers: no rounding
    index = int(np.argmax(depth))
    if depth[index] <= 0:
        return None
    fastest = float(time[-1])
    return TurningPoint(
        index,
        depth[index] / (across * down),
        float(time[0] - time[index]) / fastest,
        float(time[index] - time[-1]) / fastest,
    )


def time_at(memory: Int64Array, time: Int64Array, limits: Int64Array) -> FloatArray:
    """float64[L]: the least time with at most so much memory, infinite where nothing fits."""
    place = np.searchsorted(memory, limits, side="right") - 1
    return np.where(place >= 0, time[place], np.inf)


def times_above(
    memory: Int64Array, time: Int64Array, upper_memory: Int64Array, upper_time: Int64Array
) -> FloatArray:
    """How many times slower one frontier is than another, at every memory at which it has a point.

    Args:
        memory, time: int64[P], of the one that is thought to lie below.
        upper_memory, upper_time: int64[Q], of the one above.

    Returns:
        float64[Q], its time by the other's time with as much memory: 1 where they meet, 0 where the
        other has no point of so little memory.
    """
    return upper_time / time_at(memory, time, upper_memory)
