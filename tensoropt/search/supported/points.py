"""Supported points: strategies of least cost for some weights, found by dichotomy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int32Array
from tensoropt.problem.model import Problem
from tensoropt.search.pareto.hull import Cost, gap, lower_hull, slope
from tensoropt.search.pareto.region import Weights
from tensoropt.search.watch import tell

__all__ = ["Points", "Strategy", "dichotomy"]

Strategy: TypeAlias = npt.NDArray[np.int32]
"""int32[nodes], a configuration of each."""


class Points:
    """Strategies of one problem, by their costs.

    Args:
        problem: whose strategies they are.
        strategies: to begin with.
    """

    def __init__(self, problem: Problem, strategies: Iterable[Strategy] = ()) -> None:
        self._problem = problem
        self._known: dict[Cost, Strategy] = {}
        for strategy in strategies:
            self.add(strategy)

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, cost: Cost) -> Strategy:
        return self._known[cost]

    def add(self, strategy: Strategy) -> Cost:
        """Take in a strategy, unless one of the same costs is known; returns its costs."""
        cost = self._problem.cost(strategy.tolist())
        self._known.setdefault(cost, strategy)
        return cost

    def best(self, weights: Weights) -> Cost:
        """The costs of the known strategy that costs least for a pair of weights."""
        return min(self._known, key=lambda cost: weights[0] * cost[1] + weights[1] * cost[0])

    def neighbours(self) -> list[tuple[Cost, Cost]]:
        """Neighbours on the lower hull, the one of less memory first."""
        costs = sorted(self._known)
        return list(pairwise(costs[corner] for corner in lower_hull(costs)))

    @property
    def strategies(self) -> Int32Array:
        """int32[points, nodes], by ascending memory."""
        return np.array([self._known[cost] for cost in sorted(self._known)], dtype=np.int32)


def dichotomy(
    points: Points,
    search: Callable[[Sequence[Weights]], Iterable[Strategy]],
    *,
    epsilon: float,
    at_once: int,
    most: int,
) -> None:
    """Look between neighbours on the hull, the widest gaps first (Aneja and Nair, "Bicriteria
    transportation problem", 1979).

    Between two points the weights are next for which both cost the same. It ends when gaps that
    have not been looked into are at most ``epsilon``.

    Args:
        points: among them the ends; takes in what is found.
        search: finds a strategy of little cost for each of some weights.
        epsilon: how wide a gap may stay.
        at_once: pairs of weights at a time: on every machine the same, so that what is found is.
        most: pairs of weights altogether.
    """
    tried: set[tuple[Cost, Cost]] = set()
    for number in range(0, most, at_once):
        gaps = [ends for ends in points.neighbours() if ends not in tried and gap(ends) > epsilon]
        if not gaps:
            return
        tell("supported strategies", number, most)
        widest = sorted(gaps, key=gap)[-at_once:]
        tried.update(widest)
        for strategy in search([(1.0, slope(*ends)) for ends in widest]):
            points.add(strategy)
