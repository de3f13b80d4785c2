"""Strategies near the lower hull of a large problem's frontier, by neighbourhoods."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from tensoropt.arrays import Int32Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, nearest
from tensoropt.search.pareto.hull import Cost, gap, lower_hull
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods, lowest
from tensoropt.search.watch import tell, was_interrupted

__all__ = ["strategies_near_hull"]

Weights = tuple[float, float]

# Each node's best for a weight are looked at in any case.
_BEST = 8
# Points that are looked for between those of the bounds' weights.
_MOST_MORE = 24
# Weights at a time: on every machine the same, so that what is found is, too.
_AT_ONCE = 2
# What is known is searched no further where a bound says that it is as near as this share of
# epsilon.
_PROVEN = 0.05


def strategies_near_hull(
    problem: Problem,
    table: WeightedBounds,
    known: Int32Array | None,
    bounds: Sequence[Bounds],
    epsilon: float,
) -> Int32Array:
    """Strategies of nearly least cost for the bounds' weights and between, by ascending memory.

    From the weights of memory to those of time and back, each begins with the best that is known:
    of many strategies that take nearly the same time, those that also take little memory fit
    together best.

    Args:
        problem: whose strategies they are.
        table: the same in flat arrays.
        known: int32[any, nodes], strategies to begin with.
        bounds: by ascending worth of memory, or nearly so.
        epsilon: how wide a gap between points may be.

    Returns:
        int32[any, nodes].
    """
    found = _Points(problem, table, bounds)
    if known is None:
        alone = np.split(bounds[-1].of_configuration, table.start[1:-1])
        known = np.array([[int(own.argmin()) for own in alone]], dtype=np.int32)
    for strategy in known:
        found.add(strategy.tolist())
    order = [*range(len(bounds))[::-1], *range(len(bounds))]
    for number in range(0, len(order), _AT_ONCE):
        if was_interrupted():
            break
        tell("strategies of least cost", number, len(order) + _MOST_MORE)
        places = order[number : number + _AT_ONCE]
        found.improve([place for place in places if found.may_gain(place, _PROVEN * epsilon)])
    tried: set[tuple[Cost, Cost]] = set()
    for number in range(0, _MOST_MORE, _AT_ONCE):
        gaps = [pair for pair in found.gaps() if pair not in tried and gap(pair) > epsilon]
        if not gaps or was_interrupted():
            break
        tell("strategies of least cost", len(order) + number, len(order) + _MOST_MORE)
        widest = sorted(gaps, key=gap)[-_AT_ONCE:]
        tried.update(widest)
        slopes = [(one[1] - other[1]) / (other[0] - one[0]) for one, other in widest]
        pairs = [(1.0, slope) for slope in slopes]
        found.improve([nearest(pair, found.weights) for pair in pairs], pairs)
    return found.strategies()


class _Points:
    """Strategies by their costs, and what is promising for some weights."""

    def __init__(self, problem: Problem, table: WeightedBounds, bounds: Sequence[Bounds]) -> None:
        self.weights = [(each.per_nanosecond, each.per_byte) for each in bounds]
        self._problem = problem
        self._bounds = bounds
        self._near = Neighbourhoods(problem, table)
        self._best = [lowest(each.of_configuration, table.start, _BEST) for each in bounds]
        self._known: dict[Cost, list[int]] = {}

    def add(self, strategy: list[int]) -> None:
        self._known.setdefault(self._problem.cost(strategy), strategy)

    def may_gain(self, place: int, share: float) -> bool:
        """Whether a strategy may be better than known ones by more than a share, for a bound's
        weights."""
        least = _weighted(self.weights[place], self._nearest_known(self.weights[place]))
        return least > self._bounds[place].least * (1 + share)

    def improve(self, places: Sequence[int], pairs: Sequence[Weights] | None = None) -> None:
        """Search near what is known, for the weights of some bounds, or others near them."""
        pairs = [self.weights[place] for place in places] if pairs is None else pairs
        tasks = [
            (pair, self._known[self._nearest_known(pair)], self._best[place])
            for place, pair in zip(places, pairs, strict=True)
        ]
        if not tasks:
            return
        # The first neighbourhood decides in which order nodes are eliminated in all.
        at_once = min(len(tasks), os.cpu_count() or 1) if self._near.has_order else 1
        with ThreadPoolExecutor(max_workers=at_once) as pool:
            for strategy in pool.map(lambda task: self._near.improved(*task), tasks):
                self.add(strategy)

    def gaps(self) -> list[tuple[Cost, Cost]]:
        """Neighbours on the lower hull of what is known."""
        costs = sorted(self._known)
        return list(pairwise(costs[corner] for corner in lower_hull(costs)))

    def strategies(self) -> Int32Array:
        return np.array([self._known[cost] for cost in sorted(self._known)], dtype=np.int32)

    def _nearest_known(self, pair: Weights) -> Cost:
        return min(self._known, key=lambda cost: _weighted(pair, cost))


def _weighted(pair: Weights, cost: Cost) -> float:
    return pair[0] * cost[1] + pair[1] * cost[0]
