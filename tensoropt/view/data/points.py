"""A point of memory and time beside a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensoropt.converters import Natural

__all__ = ["PointKind", "PointView"]

PointKind = Literal["plan", "frontier", "data parallelism", "other algorithm"]


@dataclass(frozen=True, slots=True)
class PointView:
    """One point of memory and time.

    Attributes:
        kind: the plan; another point of the frontier; data parallelism or another algorithm, which
            may lie above the frontier.
        name: the way to run the step, or the algorithm.
        number: position in the plan's frontier; None for other points.
        memory_bytes: the search's sum.
        nanoseconds: the search's sum of times.
        peak_bytes: the predicted peak; None if it is unknown.
        peak_is_estimated: whether a known peak is estimated; else it comes from a dry run.
        fits: whether it fits the limit of memory.
    """

    kind: PointKind
    name: str
    number: Natural | None
    memory_bytes: Natural
    nanoseconds: Natural
    peak_bytes: Natural | None
    peak_is_estimated: bool
    fits: bool
