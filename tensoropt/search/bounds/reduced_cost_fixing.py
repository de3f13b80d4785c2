"""The configurations that can be on a frontier: all others are proven not to be.

Some strategies are known: their frontier is a staircase, and what is better than it lies below one
of its inner corners. Bounds for several weights (`message_passing`) say where strategies
with a given configuration lie: above a line for each weight. If no corner is above all these
lines, no strategy with this configuration is better than every known one: it is left out.
This is reduced-cost fixing, known from integer programming, for two objectives.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numba
import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int64Array
from tensoropt.search.bounds.message_passing import ROUNDING, Bounds
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["best_of", "corners", "limits", "possible", "proven_within"]


_MOST_CORNERS = 512
_FARTHEST = 1e6


def corners(
    memory: Int64Array, time: Int64Array, less: int = 1
) -> tuple[Float64Array, Float64Array]:
    """Where a strategy would lie at most that is better than every point of a frontier.

    A strategy that no point is as good as in both costs has, for some i, less memory than point i
    and less time than point i - 1; below the first point its time is not limited, nor its memory
    beyond the last. Of long staircases neighbouring steps are taken together: the corner of both
    is above either.

    Args:
        memory, time: of the frontier.
        less: by how much at least better is less: 1 for whole numbers.

    Returns:
        float64[C] memory and time of the corners, inf where not limited.
    """
    inner = np.linspace(1, memory.size, min(memory.size, _MOST_CORNERS)).astype(np.int64)
    steps = np.unique(np.concatenate([[0], inner, [memory.size + 1]]))
    limits = np.append(memory.astype(np.float64) - less, np.inf)
    slower = np.concatenate([[np.inf], time.astype(np.float64) - less])
    # Steps first..last - 1 together: less memory than the last of them, less time than the first.
    return limits[steps[1:] - 1], slower[steps[:-1]]


def possible(
    bounds: Sequence[Bounds], memory: Int64Array, time: Int64Array, epsilon: float = 0.0
) -> BoolArray:
    """Which configurations may be those of a strategy that is better than all of a frontier.

    Args:
        bounds: for some weights.
        memory, time: of the frontier.
        epsilon: how much better: no point is within a factor of 1 + epsilon in both costs.

    Returns:
        bool[configurations of all nodes].
    """
    at_memory, at_time = corners(memory, time, less=0 if epsilon else 1)
    limit = limits(_weights(bounds), at_memory, at_time)
    limit *= (1.0 + ROUNDING) / (1.0 + epsilon)
    lines = np.array([each.of_configuration for each in bounds])
    found: BoolArray = _under_a_corner(np.ascontiguousarray(lines.T), np.ascontiguousarray(limit.T))
    return found


def proven_within(bounds: Sequence[Bounds], known: Frontier, start: Int64Array) -> float | None:
    """By how much a strategy can be better than all known ones, at most.

    A configuration may be that of a strategy better by some factor, if for one corner of the
    staircase (`corners`) no bound is more than what the corner costs, divided by the factor. No
    strategy is better by a factor that rules out all configurations of some node.

    Args:
        bounds: for some weights.
        known: strategies.
        start: int64[nodes + 1], where each node's configurations are in the bounds.

    Returns:
        The share; None if no such share is known, as where least costs are 0.
    """
    limit = limits(_weights(bounds), *corners(known.memory, known.time, less=0)) * (1.0 + ROUNDING)
    lines = np.array([each.of_configuration for each in bounds])
    share = _most_better(np.ascontiguousarray(lines.T), np.ascontiguousarray(limit.T), start) - 1.0
    return max(0.0, share) if share <= _FARTHEST else None


def limits(
    weights: Sequence[tuple[float, float]], at_memory: Float64Array, at_time: Float64Array
) -> Float64Array:
    """float64[weights, corners], what corners cost by each pair of weights, inf where no limit."""
    limit = np.zeros((len(weights), at_time.size))
    for number, (per_nanosecond, per_byte) in enumerate(weights):
        # What has no weight limits nothing, however much it is.
        if per_nanosecond:
            limit[number] += per_nanosecond * at_time
        if per_byte:
            limit[number] += per_byte * at_memory
    return limit


def _weights(bounds: Sequence[Bounds]) -> list[tuple[float, float]]:
    return [(each.per_nanosecond, each.per_byte) for each in bounds]


@numba.njit(cache=True, nogil=True)
def _most_better(lines: Float64Array, limit: Float64Array, start: Int64Array) -> float:
    """The least of all nodes' largest factors by which a configuration's strategy may be better."""
    least = np.inf
    for node in range(start.size - 1):
        first, last = start[node], start[node + 1]
        # Most nodes say no more than others: seen at the configuration that seems the best.
        best, begin = np.inf, first
        for row in range(first, last):
            total = 0.0
            for line in range(lines.shape[1]):
                total += lines[row, line] / max(lines[first, line], 1.0)
            if total < best:
                best, begin = total, row
        most = _factor(lines[begin], limit, 0.0)
        for row in range(first, last):
            if most >= least:
                break
            most = _factor(lines[row], limit, most)
        least = min(least, most)
    return least


@numba.njit(cache=True, nogil=True)
def _factor(line: Float64Array, limit: Float64Array, most: float) -> float:
    """The largest factor by which some row of ``limit`` is at least ``line`` throughout; or
    ``most``, if that is more."""
    for corner in range(limit.shape[0]):
        factor = np.inf
        for number in range(line.size):
            # What is not positive limits nothing, as no row is negative.
            if line[number] > 0:
                factor = min(factor, limit[corner, number] / line[number])
            if factor <= most:
                break
        most = max(most, factor)
    return most


@numba.njit(cache=True, nogil=True)
def _under_a_corner(lines: Float64Array, limit: Float64Array) -> BoolArray:
    """Which rows of ``lines`` are at most some row of ``limit`` throughout."""
    found = np.zeros(lines.shape[0], dtype=np.bool_)
    for row in range(lines.shape[0]):
        for corner in range(limit.shape[0]):
            fits = True
            for line in range(lines.shape[1]):
                if lines[row, line] > limit[corner, line]:
                    fits = False
                    break
            if fits:
                found[row] = True
                break
    return found


def best_of(bounds: Sequence[Bounds], start: Int64Array, count: int) -> list[Int64Array]:
    """For each node the configurations with the lowest bounds for some weight, ascending."""
    kept = []
    for first, last in itertools.pairwise(start):
        lowest = [
            np.argsort(each.of_configuration[first:last], kind="stable")[:count] for each in bounds
        ]
        kept.append(np.unique(np.concatenate(lowest)))
    return kept
