"""The union of several frontiers: the points that no other beats."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["UnionPoint", "union"]


class UnionPoint(NamedTuple):
    """A point of the union.

    Attributes:
        memory: bytes, by which points are compared.
        time: nanoseconds.
        frontier: the number of the frontier from which it comes.
        number: its number in that frontier.
    """

    memory: int
    time: int
    frontier: int
    number: int


def union(points: Iterable[UnionPoint]) -> list[UnionPoint]:
    """Return the points that no other beats, by ascending memory.

    Among equal points, that of the earlier frontier is kept.
    """
    kept: list[UnionPoint] = []
    for point in sorted(points):
        if not kept or point.time < kept[-1].time:
            kept.append(point)
    return kept
