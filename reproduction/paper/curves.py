"""The shape of cost frontiers: turning points, and the frontier that lies above another one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int64Array

__all__ = ["TurningPoint", "time_at", "times_above", "turning_point"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TurningPoint:
    """The point at which a frontier turns from steep to flat.

    Attributes:
        index: number of the point.
        depth: its distance below the chord from the first to the last point, with both axes scaled
            to 0 to 1 over the frontier: 0 for a straight line, 1 for a right angle.
        rise: share of the fastest time by which the time rises to the left of the point.
        fall: share of the fastest time by which the time still falls to the right of the point.
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
        The point; None if the frontier has fewer than three points, or no point below the chord.
    """
    if memory.size < 3:
        return None
    across, down = int(memory[-1] - memory[0]), int(time[0] - time[-1])
    left, below = (memory - memory[0]).astype(object), (time - time[-1]).astype(object)
    depth = across * down - left * down - below * across  # Python's integers do not overflow
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
    """float64[L]: the least time within each memory limit, infinite if nothing fits."""
    place = np.searchsorted(memory, limits, side="right") - 1
    return np.where(place >= 0, time[place], np.inf)


def times_above(
    memory: Int64Array, time: Int64Array, upper_memory: Int64Array, upper_time: Int64Array
) -> FloatArray:
    """The factor by which one frontier is slower than another, at the memory of each of its points.

    Args:
        memory, time: int64[P], the frontier that should lie below.
        upper_memory, upper_time: int64[Q], the frontier that should lie above.

    Returns:
        float64[Q], its time divided by the other frontier's time within the same memory: 1 if they
            meet, 0 if the other frontier has no point with as little memory.
    """
    return upper_time / time_at(memory, time, upper_memory)
