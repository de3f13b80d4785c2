"""The union of several frontiers: the points that no other beats."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["UnionPoint", "union"]


class UnionPoint(NamedTuple):
    """A point of the union.

    Attributes:
        memory: bytes.
        time: nanoseconds.
        frontier: the place of the frontier whose point it is.
        number: of the point in that frontier.
    """

    memory: int
    time: int
    frontier: int
    number: int


def union(frontiers: Iterable[Iterable[tuple[int, int]]]) -> list[UnionPoint]:
    """Unite frontiers, given by the bytes and nanoseconds of their points.

    Returns:
        The points that no other beats, by ascending memory; of equal ones the earlier frontier's.
    """
    every = sorted(
        UnionPoint(memory, time, place, number)
        for place, points in enumerate(frontiers)
        for number, (memory, time) in enumerate(points)
    )
    found: list[UnionPoint] = []
    for point in every:
        if not found or point.time < found[-1].time:
            found.append(point)
    return found
