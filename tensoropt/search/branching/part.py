"""A part of a problem: some configurations of each node, lower bounds and supported points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from tensoropt.problem.condense import condense
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import restriction
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, warm_bounds
from tensoropt.search.branching.corner_gaps import Corners
from tensoropt.search.branching.least_cost import least_cost
from tensoropt.search.branching.messages import messages_left
from tensoropt.search.pareto.hull import hull_of
from tensoropt.search.pareto.reduce import reduce_points
from tensoropt.search.pareto.region import Weights
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods

__all__ = ["NO_CORNERS", "Hull", "Part"]

NO_CORNERS = np.zeros(0), np.zeros(0)
"""No corners."""


# Bounds of a part from whose messages those of a smaller one begin.
_BEGIN = 4


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
        window: memory and time of the corners below which the part is searched; None for all.
        closed: of corners below which it, or a larger one, has been searched, or another part is.
        failed: configurations for which an exact search took too much, infinite if none did.
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
        self.window: Corners | None = None
        self.closed: Corners = NO_CORNERS
        self.failed = np.inf
        self._near: Neighbourhoods | None = None
        self._supported = np.zeros((0, len(nodes)), dtype=np.int32)
        self._costs = np.zeros((2, 0), dtype=np.int64)  # memory and time of these
        self._begin: list[Bounds] = []  # of a larger part, with messages to begin with

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
        own = self._numbers(alive)
        smaller = restriction(self.problem, own)
        problem, left = condense(smaller.problem)
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
        part = Part(problem, self.nodes[left], kept, fixed, bounds, given)
        edges = np.array([stays[edge.source] and stays[edge.target] for edge in self.problem.edges])
        part._begin = [
            replace(each, messages=messages_left(each.messages, self.problem, smaller, edges))
            for each in (self.bounds[number] for number in inherited[:_BEGIN])
            if each.messages.size
        ]
        part.window, part.closed, part.failed = self.window, self.closed, self.failed
        return part

    def _numbers(self, alive: BoolArray) -> list[Int64Array]:
        """Of each node the numbers of the configurations that are alive."""
        places = np.flatnonzero(alive)
        first = np.searchsorted(places, self.start)
        numbers = places - np.repeat(self.start[:-1], np.diff(first))
        return [numbers[begin:end] for begin, end in pairwise(first.tolist())]

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

    def close(self, corners: Corners) -> None:
        """Search no further below some corners."""
        (memory, time), (more_memory, more_time) = self.closed, corners
        self.closed = np.append(memory, more_memory), np.append(time, more_time)

    def is_open(self, corners: Corners) -> BoolArray:
        """bool[corners], below which the part is searched."""
        found = ~_below(corners, self.closed)
        return found if self.window is None else found & _below(corners, self.window)

    def bound(self, weights: Sequence[Weights], sweeps: int) -> tuple[Int32Array, float]:
        """Find the strategy of least cost for each of some weights, and bounds that are as high, as
        far as message passing can prove it.

        Returns:
            int32[weights, nodes], strategies of the whole problem; and the additions that it took.
        """
        if self._near is None:
            self._near = Neighbourhoods(self.table)
        found: list[Int32Array] = []
        spent = 2.0 * sweeps * self.cells * len(weights)
        own = [each for each in self.bounds if each.messages.size]
        for bounds in warm_bounds(self.table, weights, sweeps, [*self._begin, *own]):
            known, cost = self._best_known(self._near, bounds, found)
            closer, strategy, additions = least_cost(self.table, self._near, bounds, known, cost)
            spent += additions
            self._learn(closer)
            found.append(strategy)
        strategies = np.array(found)
        self._supported = np.concatenate([self._supported, strategies])
        self._costs = np.concatenate([self._costs, self.problem.costs(strategies)], axis=1)
        return self.whole_strategies(strategies), spent

    def hull(self) -> Hull:
        """Of the supported points that were found."""
        memory, time = self._costs
        order = reduce_points(memory, time)
        order = order[hull_of(memory[order], time[order])]
        return Hull(memory[order], time[order], self._supported[order])

    def _learn(self, bounds: Bounds) -> None:
        """Take bounds, or the closer of each where there are some for these weights already."""
        for number, known in enumerate(self.bounds):
            if known.weights == bounds.weights:
                least = max(known.least, bounds.least)
                closer = np.maximum(known.min_marginals, bounds.min_marginals)
                self.bounds[number] = replace(bounds, least=least, min_marginals=closer)
                return
        self.bounds.append(bounds)

    def _best_known(
        self, near: Neighbourhoods, bounds: Bounds, more: Sequence[Int32Array]
    ) -> tuple[Int32Array, float]:
        """The supported strategy of least cost for the bounds' weights, or one of some more, and
        its cost; one near the bounds, where none is known yet."""
        strategies = list(more)
        if self._supported.size:
            memory, time = self._costs
            costs = bounds.weights[0] * time + bounds.weights[1] * memory
            strategies.append(self._supported[int(costs.argmin())])
        strategies = strategies or [near.near_bounds(bounds)]
        costs = np.array([near.cost(bounds.weights, each) for each in strategies])
        best = int(costs.argmin())
        return strategies[best], float(costs[best])


def _below(corners: Corners, others: Corners) -> BoolArray:
    """bool[corners], whether each is at most one of the others in memory and in time."""
    found = np.zeros(corners[0].size, dtype=np.bool_)
    for memory, time in zip(*others, strict=True):
        found |= (corners[0] <= memory) & (corners[1] <= time)
    return found
