"""The lower hull of points, and strategies between neighbours on it."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np

from tensoropt.arrays import Float64Array, Int32Array, Int64Array
from tensoropt.search.effort import BETWEEN

__all__ = ["Cost", "between", "gap", "hull_of", "hull_slopes", "slope"]

Cost: TypeAlias = tuple[int, int]
"""Memory and time of a strategy."""


def gap(pair: tuple[Cost, Cost]) -> float:
    """Return the share by which a strategy between two points can be better than both.

    Both costs are memory and time; the first has less memory.
    """
    (memory, time), (more, less) = pair
    return min(more / max(memory, 1), time / max(less, 1)) - 1


def hull_of(memory: Int64Array, time: Int64Array) -> list[int]:
    """Return the numbers of the points at the corners of a frontier's lower left hull."""
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
    """Return the nanoseconds per byte along the lower hull of a frontier, the steepest first."""
    corner = hull_of(memory, time)
    slopes: Float64Array = -np.diff(time[corner]) / np.diff(memory[corner])
    return slopes


def slope(one: Cost, other: Cost) -> float:
    """Return the nanoseconds per byte at which two points cost the same; the first has less
    memory."""
    return (one[1] - other[1]) / (other[0] - one[0])


def between(strategies: Int32Array) -> Int32Array:
    """Return strategies between each strategy and the next.

    Nodes take the next strategy's configuration one after the other, in ascending and in descending
    order (path relinking: Glover, "Tabu search and adaptive memory programming", 1997).

    Args:
        strategies: int32[strategies, nodes], along a frontier.

    Returns:
        int32[any, nodes].
    """
    rows = [strategies[:0]]
    for one, other in pairwise(strategies):
        different = np.flatnonzero(one != other)
        if different.size < 2:
            continue
        steps = np.linspace(1, different.size - 1, min(BETWEEN, different.size - 1))
        for order in (different, different[::-1]):
            place = np.empty(one.size, dtype=np.int64)
            place[order] = np.arange(order.size)
            taken = place[None, :] < steps.round().astype(np.int64)[:, None]
            rows.append(np.where(taken & (one != other)[None, :], other, one).astype(np.int32))
    return np.concatenate(rows)
