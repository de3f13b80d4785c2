"""A subproblem: some states of each node, with lower bounds and supported points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from tensoropt.errors import SearchSizeError
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, nearest, warm_bounds
from tensoropt.search.bounds.passes import sweep_additions
from tensoropt.search.branching.known_points import Points
from tensoropt.search.branching.least_cost import least_cost
from tensoropt.search.effort import LINES_AT_ONCE, RECOMBINED
from tensoropt.search.exact.linearise import simplify
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.flat.fewer_states import NEW, fewer_states
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.limits import SearchLimits
from tensoropt.search.pareto.hull import hull_of
from tensoropt.search.pareto.reduce import reduce_points
from tensoropt.search.pareto.region import SearchRegion, Weights
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods
from tensoropt.search.tolerances import FEW_CELLS, NEGLIGIBLE

__all__ = ["NOWHERE", "Hull", "Subproblem"]

NOWHERE = SearchRegion(np.zeros(0), np.zeros(0))
"""A region without corners."""


class Hull(NamedTuple):
    """The lower hull of a subproblem's supported points, by ascending memory.

    Attributes:
        memory, time: int64[points].
        states: int32[points, nodes of the subproblem].
        strategies: int32[points, nodes of the whole problem].
    """

    memory: Int64Array
    time: Int64Array
    states: Int32Array
    strategies: Int32Array

    def slope(self, edge: int) -> float:
        """The nanoseconds that a byte saves between the two points of an edge."""
        high = self.time[edge] - self.time[edge + 1]
        return float(high / (self.memory[edge + 1] - self.memory[edge]))

    def edges_below(self, memory: Float64Array) -> Int64Array:
        """int64[any], the edge that spans each memory; the first or last one beyond the hull."""
        after = np.searchsorted(self.memory, memory, side="left")
        return np.clip(after - 1, 0, max(self.memory.size - 2, 0))


class Subproblem:
    """A part of a search problem: some states of each of its nodes.

    Attributes:
        graph: the problem with these states alone. A node with one state left is not in it.
        table: computes bounds of the graph for given weights.
        bounds: the known bounds, each for a pair of weights. Bounds without messages were taken
            over from a larger subproblem.
        inherited_lines: for other pairs of weights, lower bounds on the cost of a larger
            subproblem's strategies, in the form of `lines`.
        window: the region in which it is searched; None for everywhere.
        closed: the region that needs no search, because this or another subproblem was searched
            there.
        failed: the number of states at which an exact search exceeded its limits; infinite if none
            did.
        is_simple: whether nodes whose elimination makes few points were eliminated.
    """

    def __init__(
        self,
        graph: FlatGraph,
        bounds: Sequence[Bounds] = (),
        inherited_lines: Sequence[tuple[Weights, float]] = (),
        *,
        is_simple: bool = False,
    ) -> None:
        self.graph, self.bounds = graph, list(bounds)
        self.inherited_lines = list(inherited_lines)
        self.table = WeightedBounds(graph)
        self.window: SearchRegion | None = None
        self.closed = NOWHERE
        self.failed = np.inf
        self.is_simple = is_simple
        self._near: Neighbourhoods | None = None
        # The supported points: their states here and in the whole problem, their memory and time.
        self._states = np.zeros((0, self.nodes), dtype=np.int32)
        self._strategies = np.zeros((0, graph.size), dtype=np.int32)
        self._costs = np.zeros((2, 0), dtype=np.int64)
        self._first_bounds: list[Bounds] = []  # their messages are where the first sweeps begin

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.start.size - 1

    @property
    def start(self) -> Int64Array:
        """int64[nodes + 1], where each node's configurations begin in the bounds."""
        return self.table.start

    @property
    def configurations(self) -> int:
        """The number of configurations of all nodes."""
        return int(self.start[-1])

    @property
    def cells(self) -> int:
        """The number of cells of all edges."""
        return self.table.cells

    @property
    def own(self) -> list[Bounds]:
        """The bounds of this subproblem, without those of a larger one."""
        return [each for each in self.bounds if each.messages.size]

    def mixtures(self, hull: Hull, points: Int64Array) -> Subproblem:
        """The subproblem of all mixtures of some supported points of the hull."""
        alive = np.zeros(self.configurations, dtype=np.bool_)
        alive[self.start[:-1] + hull.states[points]] = True
        return Subproblem(fewer_states(self.graph, alive).graph)

    def only(self, alive: BoolArray, inherited: Sequence[int] = ()) -> Subproblem:
        """The subproblem with some of its states, at least one of each node.

        Args:
            alive: bool[states of all nodes].
            inherited: numbers of the bounds of this subproblem that the smaller one takes over.
        """
        fewer = fewer_states(self.graph, alive)
        is_new = fewer.states == NEW
        bounds = [
            replace(
                each,
                min_marginals=np.where(is_new, each.least, each.min_marginals[fewer.states]),
                messages=each.messages[:0],
            )
            for each in (self.bounds[number] for number in inherited)
        ]
        weights = {each.weights for each in bounds}
        lines = [line for line in self.lines() if line[0] not in weights]
        part = Subproblem(fewer.graph, bounds, lines, is_simple=self.is_simple)
        part._first_bounds = [
            replace(each, messages=each.messages[fewer.messages])
            for each in (self.bounds[number] for number in inherited[:LINES_AT_ONCE])
            if each.messages.size
        ]
        part.window, part.closed, part.failed = self.window, self.closed, self.failed
        return part

    def simplified(self, limits: SearchLimits) -> Subproblem:
        """The subproblem after eliminations that make few points, without bounds of its own.

        It is the subproblem itself if the tables of the eliminations exceed the limits.
        """
        self.is_simple = True
        try:
            graph = SearchGraph(self.graph, limits)
            simplify(graph)
        except SearchSizeError:
            return self
        part = Subproblem(graph.flat(), inherited_lines=self.lines(), is_simple=True)
        part.window, part.closed, part.failed = self.window, self.closed, self.failed
        return part

    def lines(self) -> list[tuple[Weights, float]]:
        """Pairs of weights, each with a lower bound on the cost of every strategy for them."""
        return [*self.inherited_lines, *((each.weights, each.least) for each in self.bounds)]

    def is_loose(self, hull: Hull, edge: int, share: float) -> bool:
        """Whether the cost of an edge's points exceeds the bound on it by more than a share.

        The cost is that of the edge's slope. Between the slopes that have bounds, bounds are
        interpolated.
        """
        slope = hull.slope(edge)
        lines = [(pair[1], least) for pair, least in self.lines() if pair[0] == 1]
        worth, least = np.array(sorted(lines)).T
        known = float(np.interp(slope, worth, least, left=0.0, right=0.0))
        return float(hull.time[edge] + slope * hull.memory[edge]) > known * (1 + share)

    def min_marginals(self) -> Float64Array:
        """float64[configurations of all nodes, bounds]."""
        return np.ascontiguousarray(np.array([each.min_marginals for each in self.bounds]).T)

    def close(self, region: SearchRegion) -> None:
        """Exclude a region from the search."""
        self.closed = SearchRegion(
            np.append(self.closed.memory, region.memory), np.append(self.closed.time, region.time)
        )

    def is_open(self, region: SearchRegion) -> BoolArray:
        """bool[corners], whether the subproblem is searched below each corner."""
        is_open = ~self.closed.has(region)
        return is_open if self.window is None else is_open & self.window.has(region)

    def bound(
        self, weights: Sequence[Weights], sweeps: int, enough: float, slack: float
    ) -> tuple[Points, float, int]:
        """Find a strategy of least cost for each pair of weights, and raise the bounds on its cost.

        Bounds between two bounds for other weights are interpolated from these, where that leaves
        few configurations. Message passing raises all of them, as far as it can prove more.

        Args:
            weights: the pairs, all different.
            sweeps: number of sweeps of message passing for bounds that are not interpolated.
            enough: a bound is not raised once the strategy costs at most this share more.
            slack: share. Interpolated bounds are raised only for configurations whose bound is at
                most this share above the least known cost.

        Returns:
            A strategy of the whole problem for each pair, the additions spent, and the number of
            pairs that took any.
        """
        strategies: list[Int32Array] = []
        own = self.own
        begun = {pair: self._between(pair, own, slack) for pair in weights}
        anew = [pair for pair in weights if begun[pair] is None]
        spent, swept = sweep_additions(sweeps, self.cells, len(anew)), 0
        swept_bounds = warm_bounds(self.table, anew, sweeps, [*self._first_bounds, *own])
        begun.update(zip(anew, swept_bounds, strict=True))
        for bounds in begun.values():
            assert bounds is not None
            known, cost = self._best_known(bounds, strategies, enough)
            closer, strategy, additions = least_cost(
                self.table,
                self._neighbourhoods,
                bounds,
                known,
                cost,
                enough,
                0.0 if bounds.weights in anew else slack,
            )
            spent += additions
            swept += bounds.weights in anew or additions > 0
            self._learn(closer)
            strategies.append(strategy)
        return self._know(weights, strategies), spent, swept

    def stuck(self, enough: float) -> Float64Array:
        """float64[any], the slopes with a loose bound.

        The cheapest known strategy costs more than a share above it.
        """
        return np.array(
            [
                each.weights[1]
                for each in self.own
                if each.weights[0] == 1
                and self._costs_for(each.weights).min() > each.least * (1 + enough)
            ]
        )

    def recombine(self, weights: Sequence[Weights]) -> Points | None:
        """Recombine known strategies to cheaper ones for some weights, without new bounds.

        Returns:
            The cheaper strategies, of the whole problem; None if there are none.
        """
        own = self.own
        pairs = [each.weights for each in own]
        improved_pairs, strategies = [], []
        for pair in weights:
            bounds = replace(own[nearest(pair, pairs)], weights=pair, least=0.0)
            strategy, _ = self._best_known(bounds, (), 0.0)
            memory, time, _ = self.graph.cost(pair, strategy)
            least = float(self._costs_for(pair).min())
            if pair[0] * time + pair[1] * memory < least * (1 - NEGLIGIBLE):
                improved_pairs.append(pair)
                strategies.append(strategy)
        return self._know(improved_pairs, strategies) if strategies else None

    def hull(self) -> Hull:
        """The hull of the supported points found so far."""
        memory, time = self._costs
        order = reduce_points(memory, time)
        order = order[hull_of(memory[order], time[order])]
        return Hull(memory[order], time[order], self._states[order], self._strategies[order])

    def _between(self, weights: Weights, known: Sequence[Bounds], slack: float) -> Bounds | None:
        """Interpolate bounds between those for the nearest smaller and larger weight of a byte.

        A strategy's cost for the weights is the same mean of its costs for these two.

        Returns:
            The bounds; None without bounds on both sides, or where new bounds are as quick because
            many configurations are within ``slack`` of the least known cost.
        """
        if weights[0] != 1 or not self._states.size:
            return None
        below = [each for each in known if each.weights[0] == 1 and each.weights[1] < weights[1]]
        above = [each for each in known if each.weights[0] == 1 and each.weights[1] > weights[1]]
        if not below or not above:
            return None
        low = max(below, key=lambda each: each.weights[1])
        high = min(above, key=lambda each: each.weights[1])
        share = (weights[1] - low.weights[1]) / (high.weights[1] - low.weights[1])
        min_marginals = (1 - share) * low.min_marginals + share * high.min_marginals
        memory, time = self._costs
        cost = float((time + weights[1] * memory).min())
        left = np.add.reduceat(min_marginals <= cost * (1 + slack), self.start[:-1])
        source, target = self.table.ends.source.node, self.table.ends.target.node
        if (left[source] * left[target]).sum() > FEW_CELLS * self.cells:
            return None
        least = (1 - share) * low.least + share * high.least
        messages = (1 - share) * low.messages + share * high.messages
        return Bounds(weights, least, min_marginals, messages)

    def _know(self, weights: Sequence[Weights], strategies: Sequence[Int32Array]) -> Points:
        """Add a supported point for each pair of weights by its states, and return the points."""
        states = np.array(strategies)
        memory, time, chosen = zip(
            *(self.graph.cost(pair, own) for pair, own in zip(weights, states, strict=True)),
            strict=True,
        )
        whole = self.graph.pointers.unroll_sets(np.array(chosen), self.graph.size)
        points = Points(np.array(memory), np.array(time), whole)
        self._states = np.concatenate([self._states, states])
        self._strategies = np.concatenate([self._strategies, points.strategies])
        costs = np.array([points.memory, points.time])
        self._costs = np.concatenate([self._costs, costs], axis=1)
        return points

    def _learn(self, bounds: Bounds) -> None:
        """Add bounds. If there are bounds for the same weights, the higher ones are kept."""
        for number, known in enumerate(self.bounds):
            if known.weights == bounds.weights:
                least = max(known.least, bounds.least)
                closer = np.maximum(known.min_marginals, bounds.min_marginals)
                self.bounds[number] = replace(bounds, least=least, min_marginals=closer)
                return
        self.bounds.append(bounds)

    def _costs_for(self, weights: Weights) -> Float64Array:
        """float64[supported points], the weighted costs."""
        memory, time = self._costs
        costs: Float64Array = weights[0] * time + weights[1] * memory
        return costs

    @property
    def _neighbourhoods(self) -> Neighbourhoods:
        if self._near is None:
            self._near = Neighbourhoods(self.table)
        return self._near

    def _best_known(
        self, bounds: Bounds, more: Sequence[Int32Array], enough: float
    ) -> tuple[Int32Array, float]:
        """Return the cheapest known strategy for the bounds' weights, and its cost.

        If it costs at most a share ``enough`` more than its bound, it is returned as it is. Else
        the cheapest strategies are recombined: an exact search goes over their configurations and
        promising ones. It finds parts of strategies that fit together, which bounds do not see.

        Args:
            bounds: the bounds.
            more: strategies that are not among the supported points. Without any strategy, one is
                made near the bounds.
            enough: share.
        """
        near, weights = self._neighbourhoods, bounds.weights
        order = np.argsort(self._costs_for(weights), kind="stable")[:RECOMBINED]
        strategies = [*more, *self._states[order]] or [near.near_bounds(bounds)]
        costs = [near.cost(weights, each) for each in (*more, *strategies[len(more) :][:1])]
        best = int(np.argmin(costs))
        if costs[best] <= bounds.least * (1 + enough) or len(strategies) == 1:
            return strategies[best], costs[best]
        marks = near.promising(bounds)
        for each in strategies:
            marks[self.start[:-1] + each] = True
        improved = near.improve(weights, strategies[best], marks)
        return improved, near.cost(weights, improved)
