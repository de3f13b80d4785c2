"""The lower hull of a series-parallel problem's frontier, and strategies near it.

On the hull are the supported strategies, each of least cost for some weights of time and memory.
`tensoropt.search.scalar.series_parallel` finds them among all strategies, however large the problem
is, and with each a line that no strategy is below: together they say within what the frontier is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.message_passing import ROUNDING
from tensoropt.search.pareto.frontier import Frontier, reduced_frontier
from tensoropt.search.pareto.hull import Cost, between, gap, is_below, lower_hull
from tensoropt.search.scalar.series_parallel import WeightedElimination, weighted_elimination
from tensoropt.search.supported.recombination import relinked
from tensoropt.search.watch import best_known, keep, solving, tell, was_interrupted

__all__ = ["hull_frontier"]

# Additions for one pair of weights: half a minute. More is left to bounds.
_MOST_WORK = 2e10
# Additions of all weights together, and weights.
_MOST_WORK_OF_ALL = 1.5e11
_MOST_WEIGHTS = 240
# Pairs of weights at a time: on every machine the same, so that the frontier is, too.
_AT_ONCE = 4
# Gaps so many times as wide as epsilon are filled with all that is between two strategies, narrower
# ones with little of it.
_WIDE = 20


class _Line(NamedTuple):
    """No strategy's weighted cost is less."""

    per_nanosecond: float
    per_byte: float
    least: float


@dataclass(slots=True, eq=False)
class _Hull:
    """Supported strategies by their costs, and the lines below all strategies."""

    problem: Problem
    elimination: WeightedElimination
    lines: list[_Line] = field(default_factory=list)
    points: dict[Cost, Int32Array] = field(default_factory=dict)

    def add(self, weights: Sequence[tuple[float, float]]) -> list[Cost]:
        """Find the strategies of least cost for some weights; returns their costs."""
        with ThreadPoolExecutor(max_workers=min(len(weights), os.cpu_count() or 1)) as pool:
            found = list(pool.map(lambda pair: self.elimination.least(*pair), weights))
        costs = []
        for pair, (least, strategy) in zip(weights, found, strict=True):
            self.lines.append(_Line(*pair, least))
            costs.append(self.problem.cost(strategy.tolist()))
            self.points.setdefault(costs[-1], strategy)
        return costs

    def frontier(self, known: Frontier | None) -> Frontier:
        """Supported strategies, those between them and known ones."""
        supported = np.stack([self.points[cost] for cost in sorted(self.points)])
        parts = [supported, between(supported)]
        if known is not None:
            parts.append(known.strategies)
        return self._of(np.concatenate(parts))

    def filled(self, frontier: Frontier, epsilon: float) -> Frontier:
        """With all that is between strategies where gaps are wide."""
        costs = list(zip(frontier.memory.tolist(), frontier.time.tolist(), strict=True))
        wide = [
            (one, other)
            for one, other in pairwise(lower_hull(costs))
            if gap((costs[one], costs[other])) > _WIDE * epsilon
        ]
        more = relinked(self.problem, frontier, wide)
        return self._of(np.concatenate([frontier.strategies, more])) if more.size else frontier

    def _of(self, strategies: Int32Array) -> Frontier:
        found = reduced_frontier(*self.problem.costs(strategies), strategies)
        return replace(found, within=_within(self.lines, found.memory, found.time))


def hull_frontier(
    problem: Problem, known: Frontier | None = None, epsilon: float = 0.001
) -> Frontier | None:
    """The frontier of a series-parallel problem, within a share that it states.

    Its supported strategies by dichotomy (Aneja and Nair, "Bicriteria transportation problem",
    1979): between two of them the weights are next for which both cost the same, until they are
    nearer than ``epsilon`` or nothing is below the line through them, the widest gaps first; and
    strategies on the way from each to the next, all of them where a gap is wide (`relinked`). Below
    a gap there may be strategies that no weights find: ``within`` says how far below they can be.

    Args:
        problem: with costs that are not negative.
        known: strategies to begin with.
        epsilon: more than 0.

    Returns:
        None where the graph is not series-parallel, or it would take too long.
    """
    elimination = weighted_elimination(problem, _MOST_WORK)
    if elimination is None:
        return None
    hull = _Hull(problem, elimination)
    most = int(max(16, min(_MOST_WEIGHTS, _MOST_WORK_OF_ALL / max(elimination.work, 1))))
    with solving():
        if known is not None:
            keep(known)
        try:
            _dichotomy(hull, epsilon, most, known)
            frontier = hull.frontier(known)
            keep(frontier)
            return frontier if was_interrupted() else hull.filled(frontier, epsilon)
        except KeyboardInterrupt:
            found = best_known()
            if found is None:
                raise
            return found


def _dichotomy(hull: _Hull, epsilon: float, most: int, known: Frontier | None) -> None:
    """Add supported strategies, until as many weights have been tried or all gaps are narrow."""
    ends = sorted(set(hull.add([(1.0, 0.0), (0.0, 1.0)])))
    keep(partial(hull.frontier, known))
    waiting = list(pairwise(ends))
    while waiting and len(hull.lines) < most and not was_interrupted():
        tell("supported strategies", len(hull.lines), most)
        waiting.sort(key=gap)
        wide = [pair for pair in waiting[-_AT_ONCE:] if gap(pair) > epsilon]
        if not wide:
            break
        del waiting[-len(wide) :]
        slopes = [(one[1] - other[1]) / (other[0] - one[0]) for one, other in wide]
        seen = set(hull.points)
        for (one, other), cost in zip(wide, hull.add([(1.0, w) for w in slopes]), strict=True):
            if cost not in seen and is_below(cost, one, other):
                waiting += [(one, cost), (cost, other)]


def _within(lines: Iterable[_Line], memory: Int64Array, time: Int64Array) -> float | None:
    """By how much a strategy can be better than all points of a frontier at most.

    What no point is within 1 + share of in both costs has, for some i, less than memory[i] and less
    than time[i - 1], even times 1 + share: less than memory[0] alone before the first point, less
    than the last time alone behind the last one. None where a line's least is 0.
    """
    corner_memory = np.append(memory.astype(np.float64), np.inf)
    corner_time = np.concatenate([[np.inf], time.astype(np.float64)])
    share = np.full(corner_memory.size, np.inf)
    for per_nanosecond, per_byte, least in lines:
        cost = np.zeros(share.size)
        # What has no weight limits nothing, however much it is.
        if per_nanosecond:
            cost += per_nanosecond * corner_time
        if per_byte:
            cost += per_byte * corner_memory
        if least > 0:
            share = np.minimum(share, cost * (1 + ROUNDING) / least - 1)
        else:
            share[cost <= least] = 0.0
    most = max(0.0, float(share.max()))
    return most if np.isfinite(most) else None
