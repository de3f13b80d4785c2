"""The choice of points of a frontier that are priced; the others are interpolated between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from tensoropt.arrays import Int64Array

__all__ = ["sampled"]

_HIDDEN = 0.002
"""The change of the ratio that is assumed between points of the same ratio."""


def sampled(
    sums: Int64Array, value_of: Callable[[int], int], most: int, known: Mapping[int, int]
) -> dict[int, int]:
    """Return the values of some points, most of them where the ratio of value to sum changes.

    Args:
        sums: int64[P], what a search adds up for each point.
        value_of: returns the value of a point, by its number.
        most: the most points, at least one.
        known: points whose values are known.

    Returns:
        The values by number. The last point comes first, then the first one.
    """
    last, values = len(sums) - 1, dict(known)
    for number in (last, 0)[:most]:
        if number not in values:
            values[number] = value_of(number)
    while len(values) < min(most, last + 1):
        number = _least_certain({n: value / max(int(sums[n]), 1) for n, value in values.items()})
        values[number] = value_of(number)
    return values


def _least_certain(ratio: Mapping[int, float]) -> int:
    """Return the point in the middle of the neighbours with the largest change of the ratio between
    them, times the number of points between them. Some points have no ratio yet."""

    def uncertainty(ends: tuple[int, int]) -> float:
        a, b = ends
        return (abs(ratio[b] - ratio[a]) + _HIDDEN) * (b - a)

    wide = [(a, b) for a, b in pairwise(sorted(ratio)) if b - a > 1]
    a, b = max(wide, key=uncertainty)
    return (a + b) // 2
