"""Points of a frontier by number, by a limit of memory, and at its turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import InfeasibleError, OptionError
from tensoropt.plan.amounts import bytes_of
from tensoropt.planner.options.values import TURNING_POINT, memory

__all__ = ["TurningPoint", "bytes_within", "number_of", "turning_number", "turning_point"]


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

    It is the turning point of TensorOpt, section 5.2: less memory costs much time, more gains
    little.

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


def turning_number(frontier: Sequence[tuple[int, int]]) -> int | None:
    """The number of the `turning_point` of a frontier; None if it has none.

    Args:
        frontier: (memory, time) of each point, the least memory first.
    """
    memory_and_time = np.array(frontier, dtype=np.int64).reshape(-1, 2)
    turning = turning_point(memory_and_time[:, 0], memory_and_time[:, 1])
    return None if turning is None else turning.index


def bytes_within(point: int | str) -> int | None:
    """The amount of memory as which a point is given, see `number_of`; None if it is no amount."""
    return memory(point) if isinstance(point, str) and point != TURNING_POINT else None


def number_of(point: int | str, frontier: Sequence[tuple[int, int]]) -> int:
    """The number of a point of a frontier.

    Args:
        point: its number; or an amount of memory such as "2GiB", for the fastest point within it;
            or "turning-point".
        frontier: (memory, time) of each point, the least memory first.

    Raises:
        OptionError: if the frontier has no such number, or no turning point.
        InfeasibleError: if no point has as little memory.
    """
    if point == TURNING_POINT:
        number = turning_number(frontier)
        if number is None:
            raise OptionError(
                f"a frontier turns where it has a point below the line from its first to its last. "
                f"Got point={point!r} for {len(frontier)} points without one; give a number or an "
                "amount of memory."
            )
        return number
    limit = bytes_within(point)
    if limit is not None:
        within = [number for number, (size, _) in enumerate(frontier) if size <= limit]
        if not within:
            raise InfeasibleError(
                f"a point within an amount of memory is on the frontier. Got point={point!r}, and "
                f"the least memory of a point is {bytes_of(frontier[0][0])}; give more."
            )
        return within[-1]
    number = int(point)
    if not 0 <= number < len(frontier):
        raise OptionError(
            f"point is the number of one of the {len(frontier)} points of the frontier, from 0 to "
            f"{len(frontier) - 1}. Got point={point}; `tensoropt frontier` lists them."
        )
    return number
