"""A part of a problem: some configurations of each node, lower bounds and supported points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from tensoropt.problem.condense import condense
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import restrict
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, warm_bounds
from tensoropt.search.branching.least_cost import least_cost, weighted_cost
from tensoropt.search.pareto.hull import hull_of
from tensoropt.search.pareto.reduce import reduce_points
from tensoropt.search.pareto.region import Weights
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods

__all__ = ["Hull", "Part"]


class Hull(NamedTuple):
    """The lower hull of a part's supported points, by ascending memory.

    Attributes:
        memory, time: int64[points].
        strategies: int32[points, nodes], by the part's numbers.
    """

    memory: Int64Array
    time: Int64Array
    strategies: Int32Array

    def slope(self, edge: int) -> float:
        """Nanoseconds per byte from one point to the next."""
        high = self.time[edge] - self.time[edge + 1]
        return float(high / (self.memory[edge + 1] - self.memory[edge]))

    def edges_below(self, memory: Float64Array) -> Int64Array:
        """int64[any], which edge is below each memory, the first or last beyond the ends."""
        after = np.searchsorted(self.memory, memory, side="left")
        return np.clip(after - 1, 0, max(self.memory.size - 2, 0))


class Part:
    """Some configurations of a problem's nodes.

    Attributes:
        problem: with these alone, without nodes of which one is left.
        nodes: int64[its nodes], their numbers in the whole problem.
        kept: for each of them the numbers of its configurations in the whole problem.
        fixed: int32[nodes of the whole problem], what is left of those with one configuration.
        bounds: for some weights, of the part or, without messages, of a larger one.
        given: other weights, and what strategies of a larger part cost at least for them.
    """

    def __init__(
        self,
        problem: Problem,
        nodes: Int64Array,
        kept: Sequence[Int64Array],
        fixed: Int32Array,
        bounds: Sequence[Bounds] = (),
        given: Sequence[tuple[Weights, float]] = (),
        table: WeightedBounds | None = None,
    ) -> None:
        self.problem, self.nodes, self.kept, self.fixed = problem, nodes, kept, fixed
        self.bounds, self.given = list(bounds), list(given)
        self.table = WeightedBounds(problem) if table is None else table
        self._supported: list[Int32Array] = []

    @classmethod
    def whole(cls, problem: Problem, table: WeightedBounds | None = None) -> Part:
        """All of a problem; with its flat arrays, where there are some already."""
        kept = [np.arange(node.configurations) for node in problem.nodes]
        fixed = np.zeros(len(kept), dtype=np.int32)
        return cls(problem, np.arange(len(kept)), kept, fixed, table=table)

    @property
    def start(self) -> Int64Array:
        """int64[nodes + 1], where each node's configurations are in the bounds."""
        return self.table.start

    @property
    def configurations(self) -> int:
        """Of all nodes."""
        return int(self.start[-1])

    @property
    def cells(self) -> int:
        """Of all edges."""
        return self.table.cells

    def only(self, alive: BoolArray, inherited: Sequence[int] = ()) -> Part:
        """With some of its configurations, of each node at least one.

        Args:
            alive: bool[configurations of all nodes].
            inherited: which of the bounds hold there, too, until there are closer ones.
        """
        own = [np.flatnonzero(each) for each in np.split(alive, self.start[1:-1])]
        problem, left = condense(restrict(self.problem, own))
        fixed = self.fixed.copy()
        for node, choices, each in zip(self.nodes, self.kept, own, strict=True):
            fixed[node] = choices[each[0]]
        kept = [self.kept[number][own[number]] for number in left]
        stays = np.zeros(len(own), dtype=np.bool_)
        stays[left] = True
        numbers = np.flatnonzero(alive & np.repeat(stays, np.diff(self.start)))
        bounds = [
            replace(each, min_marginals=each.min_marginals[numbers], messages=each.messages[:0])
            for each in (self.bounds[number] for number in inherited)
        ]
        weights = {each.weights for each in bounds}
        given = [line for line in self.lines() if line[0] not in weights]
        return Part(problem, self.nodes[left], kept, fixed, bounds, given)

    def whole_strategies(self, strategies: Int32Array) -> Int32Array:
        """Strategies of the part, int32[any, nodes], as those of the whole problem."""
        found = np.repeat(self.fixed[None], len(strategies), axis=0)
        for place, (node, kept) in enumerate(zip(self.nodes, self.kept, strict=True)):
            found[:, node] = kept[strategies[:, place]]
        return found

    def lines(self) -> list[tuple[Weights, float]]:
        """Weights, and what every strategy of the part costs at least for them."""
        return [*self.given, *((each.weights, each.least) for each in self.bounds)]

    def min_marginals(self) -> Float64Array:
        """float64[configurations of all nodes, bounds]."""
        return np.ascontiguousarray(np.array([each.min_marginals for each in self.bounds]).T)

    def bound(self, weights: Sequence[Weights], sweeps: int) -> Int32Array:
        """Find the strategy of least cost for each of some weights, and bounds that are as high, as
        far as message passing can prove it.

        Returns:
            int32[weights, nodes], strategies of the whole problem.
        """
        found = []
        own = [each for each in self.bounds if each.messages.size]
        for bounds in warm_bounds(self.table, weights, sweeps, own):
            known, cost = self._best_known(bounds)
            closer, strategy = least_cost(self.problem, self.table, bounds, known, cost)
            self._learn(closer)
            self._supported.append(strategy)
            found.append(strategy)
        return self.whole_strategies(np.array(found))

    def hull(self) -> Hull:
        """Of the supported points that were found."""
        strategies = np.array(self._supported)
        memory, time = self.problem.costs(strategies)
        order = reduce_points(memory, time)
        order = order[hull_of(memory[order], time[order])]
        return Hull(memory[order], time[order], strategies[order])

    def _learn(self, bounds: Bounds) -> None:
        """Take bounds, or the closer of each where there are some for these weights already."""
        for number, known in enumerate(self.bounds):
            if known.weights == bounds.weights:
                least = max(known.least, bounds.least)
                closer = np.maximum(known.min_marginals, bounds.min_marginals)
                self.bounds[number] = replace(bounds, least=least, min_marginals=closer)
                return
        self.bounds.append(bounds)

    def _best_known(self, bounds: Bounds) -> tuple[Int32Array, float]:
        """The supported strategy of least cost for the bounds' weights, and its cost; one near the
        bounds, where none is known yet."""
        if not self._supported:
            strategy = Neighbourhoods(self.problem, self.table).near_bounds(bounds)
            return strategy, weighted_cost(self.problem, bounds.weights, strategy)
        memory, time = self.problem.costs(np.array(self._supported))
        costs = bounds.weights[0] * time + bounds.weights[1] * memory
        best = int(costs.argmin())
        return self._supported[best], float(costs[best])
