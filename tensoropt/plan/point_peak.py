"""The predicted peak of a point of a frontier: the memory by which frontiers are shown and united.

A search compares strategies by the sum of kept tensors. A device feels the peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tensoropt.converters import Natural

__all__ = ["PeakSource", "PointPeak", "memory_and_time", "shown_bytes"]

PeakSource = Literal["dry run", "estimate", "interpolation"]
"""How a peak is known: from a dry run; estimated from the script's operators; or interpolated
between points of the same frontier whose peaks are known in one of these ways."""


class PointPeak(NamedTuple):
    """The predicted peak of a point.

    Attributes:
        bytes: the peak per device.
        source: how it is known.
    """

    bytes: Natural
    source: PeakSource


def shown_bytes(memory_bytes: int, peak_bytes: int | None) -> int:
    """Return the memory of a point as it is shown: its peak, or its sum where that is unknown."""
    return memory_bytes if peak_bytes is None else peak_bytes


def memory_and_time(
    points: Sequence[tuple[int, int]], peaks: Sequence[PointPeak | None]
) -> list[tuple[int, int]]:
    """Return the memory and time of points as they are shown.

    Args:
        points: the sums of bytes, and the nanoseconds of steps.
        peaks: their peaks; the sum of a point counts where its peak is unknown. Without any peaks,
            it may be empty.
    """
    peaks = peaks or (None,) * len(points)
    return [
        (shown_bytes(memory, None if peak is None else peak.bytes), time)
        for (memory, time), peak in zip(points, peaks, strict=True)
    ]
