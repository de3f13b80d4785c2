"""Where a known frontier may be bettered by most, and what it is with what was found there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tensoropt.arrays import Float64Array, Int32Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.message_passing import Bounds, nearest
from tensoropt.search.bounds.reduced_cost_fixing import corners, limits, proven_within
from tensoropt.search.pareto.frontier import Frontier, joined_frontier, reduced_frontier
from tensoropt.search.pareto.hull import between, hull_of

__all__ = ["and_between", "least_known", "wide_runs", "widest_gaps", "with_found"]

Weights = tuple[float, float]


def widest_gaps(
    known: Frontier, bounds: Sequence[Bounds], count: int, epsilon: float, *, halved: bool
) -> list[Weights]:
    """Weights where strategies may be better than known ones by most: those of the hull there.

    One after the other, as if a weight's gap between bound and known strategies were ``halved``
    then, or closed, until no gap is much wider than a quarter of ``epsilon``.
    """
    at_memory, at_time = corners(known.memory, known.time, less=0)
    share = _shares(bounds, at_memory, at_time)
    pairs = [(each.per_nanosecond, each.per_byte) for each in bounds]
    least = np.array([each.least for each in bounds])
    costs = [least_known(known, pair) for pair in pairs]
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = np.where(least > 0, costs / least, np.inf) - 1
    hull = hull_of(known.memory, known.time)
    slopes = -np.diff(known.time[hull]) / np.diff(known.memory[hull])
    found: list[Weights] = []
    while len(found) < count:
        corner = int(share.argmax())
        if not share[corner] > epsilon / 4:
            break
        pair = 1.0, 0.0
        if np.isinf(at_time[corner]):
            pair = 0.0, 1.0
        elif np.isfinite(at_memory[corner]) and slopes.size:
            place = int(np.searchsorted(known.memory[hull], at_memory[corner])) - 1
            pair = 1.0, float(slopes[min(max(place, 0), slopes.size - 1)])
        cost = least_known(known, pair)
        if pair in found or cost <= 0:
            share[corner] = 0.0
            continue
        found.append(pair)
        gap = gaps[nearest(pair, pairs)] / 2 if halved else 0.0
        line = limits([pair], at_memory, at_time)[0]
        share = np.minimum(share, line * (1 + gap) / cost - 1)
    return sorted(found, key=lambda pair: (pair[0] == 0, pair[1]))


def wide_runs(known: Frontier, bounds: Sequence[Bounds], epsilon: float) -> list[list[int]]:
    """Neighbours on the hull of what is known, by their numbers, as long as between each and the
    next a strategy may be better than known ones by more than ``epsilon``."""
    at_memory, at_time = corners(known.memory, known.time, less=0)
    wide = at_memory[_shares(bounds, at_memory, at_time) > epsilon]
    hull = hull_of(known.memory, known.time)
    ends = known.memory[hull]
    after = np.unique(np.searchsorted(ends, wide[wide > ends[0]]))
    after = after[after < len(hull)]
    runs = np.split(after, np.flatnonzero(np.diff(after) > 1) + 1) if after.size else []
    return [hull[run[0] - 1 : run[-1] + 1] for run in runs]


def _shares(
    bounds: Sequence[Bounds], at_memory: Float64Array, at_time: Float64Array
) -> Float64Array:
    """By how much a strategy below each corner may be better than it, by the least of all for
    some weights; infinite where that is 0."""
    pairs = [(each.per_nanosecond, each.per_byte) for each in bounds]
    least = np.array([each.least for each in bounds])[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(least > 0, limits(pairs, at_memory, at_time) / least, np.inf)
    shares: Float64Array = factor.min(axis=0) - 1
    return shares


def least_known(known: Frontier, pair: Weights) -> float:
    """What the known strategy costs that costs least for a pair of weights."""
    return float((pair[0] * known.time + pair[1] * known.memory).min())


def and_between(problem: Problem, known: Frontier | None, found: Int32Array) -> Int32Array:
    """Strategies found, and those on the way along the frontier of known ones and these.

    Args:
        problem: whose strategies they are.
        known: if anything is.
        found: int32[any, nodes].

    Returns:
        int32[any, nodes].
    """
    corners = _joined(problem, known, found).strategies
    return np.concatenate([found, between(corners)])


def with_found(
    problem: Problem,
    known: Frontier | None,
    found: Int32Array,
    bounds: Sequence[Bounds],
    start: Int64Array,
) -> Frontier:
    """The frontier of what is known and of strategies found; within what it is.

    Args:
        problem: whose strategies they are.
        known: if anything is.
        found: int32[any, nodes].
        bounds: for some weights.
        start: int64[nodes + 1], where each node's configurations are in the bounds.
    """
    result = _joined(problem, known, found)
    within = proven_within(bounds, result, start)
    if known is not None and known.within is not None:
        within = known.within if within is None else min(within, known.within)
    return replace(result, within=within)


def _joined(problem: Problem, known: Frontier | None, found: Int32Array) -> Frontier:
    if known is not None and not len(found):
        return known
    new = reduced_frontier(*problem.costs(found), found)
    return new if known is None else joined_frontier(known, new)
