"""The frontier that lies above another one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int64Array

__all__ = ["time_at", "times_above"]

FloatArray = npt.NDArray[np.float64]


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
