"""The lower hull of costs, and strategies on the way along it."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np

from tensoropt.arrays import Float64Array, Int32Array, Int64Array

__all__ = ["Cost", "between", "gap", "hull_of", "hull_slopes", "slope"]

Cost: TypeAlias = tuple[int, int]
"""Memory and time."""

# Strategies between two supported ones.
_BETWEEN = 24


def gap(pair: tuple[Cost, Cost]) -> float:
    """By how much a strategy between two points can be better than both: the lesser of two ways.

    The costs are memory and time; the first has less memory.
    """
    (memory, time), (more, less) = pair
    return min(more / max(memory, 1), time / max(less, 1)) - 1


def hull_of(memory: Int64Array, time: Int64Array) -> list[int]:
    """Which points of a frontier are at corners of its lower left hull."""
    costs = list(zip(memory.tolist(), time.tolist(), strict=True))

    def is_below(one: Cost, cost: Cost, other: Cost) -> bool:
        wide, high = other[0] - one[0], one[1] - other[1]
        return high * (cost[0] - one[0]) + wide * (cost[1] - one[1]) < 0

    hull: list[int] = []
    for number, cost in enumerate(costs):
        while len(hull) > 1 and not is_below(costs[hull[-2]], costs[hull[-1]], cost):
            hull.pop()
        hull.append(number)
    return hull


def hull_slopes(memory: Int64Array, time: Int64Array) -> Float64Array:
    """Nanoseconds per byte along the lower hull of a frontier, steepest first."""
    corner = hull_of(memory, time)
    slopes: Float64Array = -np.diff(time[corner]) / np.diff(memory[corner])
    return slopes


def slope(one: Cost, other: Cost) -> float:
    """What a byte weighs, in nanoseconds, where two points cost the same; the first has less."""
    return (one[1] - other[1]) / (other[0] - one[0])


def between(strategies: Int32Array) -> Int32Array:
    """Strategies on the way from each to the next: nodes take the next's configuration in turn,
    from the first on, and from the last on.

    Args:
        strategies: int32[strategies, nodes], along a frontier.

    Returns:
        int32[any, nodes].
    """
    found = [strategies[:0]]
    for one, other in pairwise(strategies):
        different = np.flatnonzero(one != other)
        if different.size < 2:
            continue
        steps = np.linspace(1, different.size - 1, min(_BETWEEN, different.size - 1))
        for order in (different, different[::-1]):
            place = np.empty(one.size, dtype=np.int64)
            place[order] = np.arange(order.size)
            taken = place[None, :] < steps.round().astype(np.int64)[:, None]
            found.append(np.where(taken & (one != other)[None, :], other, one).astype(np.int32))
    return np.concatenate(found)
