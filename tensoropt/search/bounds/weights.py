"""The weights of time and memory for which bounds and strategies are computed next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.arrays import Float64Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.corner_gaps import gaps_of_lines, limits_of
from tensoropt.search.bounds.message_passing import Bounds, nearest
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.hull import hull_of, hull_slopes
from tensoropt.search.pareto.region import Weights

__all__ = ["first_weights", "wide_runs", "widest_gaps"]

# Without a known frontier, weights of a byte reach from its worth divided by this to its worth
# times this.
_SPREAD = 1e3


def first_weights(problem: Problem, incumbent: Frontier | None, count: int) -> list[Weights]:
    """Return at most ``count`` pairs of weights: time alone, memory alone, and pairs between.

    Without a known frontier the pairs are spread around the worth of a byte. Otherwise they are
    slopes of its convex hull, whose corners are nearest to them.
    """
    if incumbent is None or len(incumbent) < 3:
        between = problem.byte_worth * np.geomspace(1 / _SPREAD, _SPREAD, count - 2)
    else:
        slopes = hull_slopes(incumbent.memory, incumbent.time)
        places = np.linspace(0, slopes.size - 1, min(count - 2, slopes.size)).astype(np.int64)
        between = slopes[np.unique(places)]
    return [(1.0, 0.0), *((1.0, float(slope)) for slope in between), (0.0, 1.0)]


def widest_gaps(
    incumbent: Frontier, bounds: Sequence[Bounds], count: int, epsilon: float, *, halved: bool
) -> list[Weights]:
    """Return the weights where strategies may be better than known ones by most: slopes of the
    hull.

    They are chosen one after the other, as if each choice closed a weight's gap, or ``halved`` it,
    until no gap is wider than a quarter of ``epsilon``.
    """
    pairs, least = _lines(bounds)
    corners, share = gaps_of_lines(pairs, least, incumbent)
    at_memory, at_time = corners
    costs = np.array([incumbent.least(pair)[1] for pair in pairs])
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = np.where(least > 0, costs / least, np.inf) - 1
    ends = incumbent.memory[hull_of(incumbent.memory, incumbent.time)]
    slopes = hull_slopes(incumbent.memory, incumbent.time)
    chosen: list[Weights] = []
    while len(chosen) < count:
        corner = int(share.argmax())
        if not share[corner] > epsilon / 4:
            break
        pair = 1.0, 0.0
        if np.isinf(at_time[corner]):
            pair = 0.0, 1.0
        elif np.isfinite(at_memory[corner]) and slopes.size:
            place = int(np.searchsorted(ends, at_memory[corner])) - 1
            pair = 1.0, float(slopes[min(max(place, 0), slopes.size - 1)])
        _, cost = incumbent.least(pair)
        if pair in chosen or cost <= 0:
            share[corner] = 0.0
            continue
        chosen.append(pair)
        gap = gaps[nearest(pair, pairs)] / 2 if halved else 0.0
        share = np.minimum(share, limits_of(corners, [pair])[:, 0] * (1 + gap) / cost - 1)
    return sorted(chosen, key=lambda pair: (pair[0] == 0, pair[1]))


def wide_runs(incumbent: Frontier, bounds: Sequence[Bounds], epsilon: float) -> list[list[int]]:
    """Return runs of neighbours on a known frontier's hull, by their numbers.

    Between each neighbour and the next, a strategy may be better than known ones by more than
    ``epsilon``.
    """
    (memory, _), share = gaps_of_lines(*_lines(bounds), incumbent)
    wide = memory[share > epsilon]
    hull = hull_of(incumbent.memory, incumbent.time)
    ends = incumbent.memory[hull]
    after = np.unique(np.searchsorted(ends, wide[wide > ends[0]]))
    after = after[after < len(hull)]
    runs = np.split(after, np.flatnonzero(np.diff(after) > 1) + 1) if after.size else []
    return [hull[run[0] - 1 : run[-1] + 1] for run in runs]


def _lines(bounds: Sequence[Bounds]) -> tuple[list[Weights], Float64Array]:
    return [each.weights for each in bounds], np.array([each.least for each in bounds])
