"""The strategies that a branch and bound knows: costs in order, strategies in blocks.

Frontiers have thousands of points with a thousand nodes each, so strategies are joined once, at the
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.search.pareto.frontier import Frontier, reduced_frontier
from tensoropt.search.pareto.reduce import reduce_points
from tensoropt.search.pareto.region import SearchRegion

__all__ = ["KnownPoints", "Points"]


class Points(NamedTuple):
    """Strategies of the whole problem and their costs.

    Attributes:
        memory, time: int64[any].
        strategies: int32[any, nodes].
    """

    memory: Int64Array
    time: Int64Array
    strategies: Int32Array


class KnownPoints:
    """The points that no other known strategy equals or beats in both costs.

    Args:
        problem: the problem of the strategies.

    Attributes:
        memory, time: int64[points], along the frontier.
        count: the number of all strategies that were ever added.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._blocks: list[Int32Array] = []
        self.count = 0
        self._number = self.memory = self.time = np.zeros(0, dtype=np.int64)

    def add(self, points: Points) -> None:
        """Add strategies."""
        self._blocks.append(points.strategies)
        numbers = self.count + np.arange(len(points.strategies))
        self.count += len(points.strategies)
        memory = np.concatenate([self.memory, points.memory])
        time = np.concatenate([self.time, points.time])
        order = reduce_points(memory, time)
        self.memory, self.time = memory[order], time[order]
        self._number = np.concatenate([self._number, numbers])[order]

    def strategies(self, points: Sequence[int] | Int64Array) -> Int32Array:
        """int32[points, nodes], the strategies of some points."""
        first = np.cumsum([0, *(len(block) for block in self._blocks)])
        wanted = self._number[np.asarray(points, dtype=np.int64)]
        block = np.searchsorted(first, wanted, side="right") - 1
        strategies = np.empty((wanted.size, len(self._problem.nodes)), dtype=np.int32)
        for number in np.unique(block):
            here = block == number
            strategies[here] = self._blocks[number][wanted[here] - first[number]]
        return strategies

    def region(self) -> SearchRegion:
        """The region of strategies better than all known ones."""
        return SearchRegion.beside(self.memory, self.time)

    def frontier(self, within: float | None) -> Frontier:
        """Return all points with a proven gap; their costs are computed anew."""
        strategies = self.strategies(np.arange(self.memory.size))
        frontier = reduced_frontier(*self._problem.costs(strategies), strategies)
        return replace(frontier, within=within)
