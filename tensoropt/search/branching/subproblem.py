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
        """The nanoseconds per byte from one point to the next."""
        high = self.time[edge] - self.time[edge + 1]
        return float(high / (self.memory[edge + 1] - self.memory[edge]))

    def edges_below(self, memory: Float64Array) -> Int64Array:
        """int64[any], the edge below each memory; the first or last edge beyond the ends."""
        after = np.searchsorted(self.memory, memory, side="left")
        return np.clip(after - 1, 0, max(self.memory.size - 2, 0))


class Subproblem:
    """Some states of a graph's nodes.

    Attributes:
        graph: with these states alone, without nodes of one state.
        table: for its bounds.
        bounds: for some weights, of the subproblem or, without messages, of a larger one.
        given: other weights, with the least costs of a larger subproblem's strategies.
        window: the region in which it is searched; None for everywhere.
        closed: the region in which it needs no search: it, a larger or another subproblem was
            searched there.
        failed: the number of states for which an exact search took too much; infinite if none did.
        is_simple: whether nodes that make few points have been eliminated.
    """

    def __init__(
        self,
        graph: FlatGraph,
        bounds: Sequence[Bounds] = (),
        given: Sequence[tuple[Weights, float]] = (),
        *,
        is_simple: bool = False,
    ) -> None:
        self.graph, self.bounds, self.given = graph, list(bounds), list(given)
        self.table = WeightedBounds(graph)
        self.window: SearchRegion | None = None
        self.closed = NOWHERE
        self.failed = np.inf
        self.is_simple = is_simple
        self._near: Neighbourhoods | None = None
        self._states = np.zeros((0, self.nodes), dtype=np.int32)  # of supported points
        self._strategies = np.zeros((0, graph.size), dtype=np.int32)
        self._costs = np.zeros((2, 0), dtype=np.int64)  # memory and time of these
        self._begin: list[Bounds] = []  # of a larger part, with messages to begin with

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
        """The bounds of the subproblem itself, not of a larger one."""
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
            inherited: the bounds that it begins with, until there are closer ones.
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
        given = [line for line in self.lines() if line[0] not in weights]
        part = Subproblem(fewer.graph, bounds, given, is_simple=self.is_simple)
        part._begin = [
            replace(each, messages=each.messages[fewer.messages])
            for each in (self.bounds[number] for number in inherited[:LINES_AT_ONCE])
            if each.messages.size
        ]
        part.window, part.closed, part.failed = self.window, self.closed, self.failed
        return part

    def simplified(self, limits: SearchLimits) -> Subproblem:
        """The subproblem without nodes that make few points, not bounded yet.

        Returns the subproblem itself if its tables exceed the limits.
        """
        self.is_simple = True
        try:
            graph = SearchGraph(self.graph, limits)
            simplify(graph)
        except SearchSizeError:
            return self
        part = Subproblem(graph.flat(), given=self.lines(), is_simple=True)
        part.window, part.closed, part.failed = self.window, self.closed, self.failed
        return part

    def lines(self) -> list[tuple[Weights, float]]:
        """Weights, and the least cost of every strategy of the subproblem for them."""
        return [*self.given, *((each.weights, each.least) for each in self.bounds)]

    def is_loose(self, hull: Hull, edge: int, share: float) -> bool:
        """Whether an edge of the hull exceeds the bound for its slope by more than a share.

        Without bounds for the slope, those of the two slopes beside it are interpolated.
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
        """Find the strategy of least cost for each pair of weights, and bounds on it.

        Bounds reach the least cost as far as message passing can prove it.

        Args:
            weights: the pairs.
            sweeps: of new bounds.
            enough: share by which a strategy may cost more than its bound.
            slack: share. A configuration that costs this share more than the least known strategy,
                as bounds of other weights say, keeps those bounds.

        Returns:
            The strategies, of the whole problem, for each pair; the additions spent, and the number
                of pairs that took any.
        """
        strategies_found: list[Int32Array] = []
        own = self.own
        begun = {pair: self._between(pair, own, slack) for pair in weights}
        anew = [pair for pair in weights if begun[pair] is None]
        spent, swept = sweep_additions(sweeps, self.cells, len(anew)), 0
        begun.update(
            zip(anew, warm_bounds(self.table, anew, sweeps, [*self._begin, *own]), strict=True)
        )
        for bounds in begun.values():
            assert bounds is not None
            known, cost = self._best_known(bounds, strategies_found, enough)
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
            strategies_found.append(strategy)
        return self._know(weights, strategies_found), spent, swept

    def stuck(self, enough: float) -> Float64Array:
        """float64[any], the slopes for which the cheapest known strategy costs more than its bound
        by more than a share."""
        return np.array(
            [
                each.weights[1]
                for each in self.own
                if each.weights[0] == 1
                and self._costs_for(each.weights).min() > each.least * (1 + enough)
            ]
        )

    def recombine(self, weights: Sequence[Weights]) -> Points | None:
        """Find cheaper strategies for some weights, near known ones, without new bounds.

        Returns:
            The strategies, of the whole problem; None if there are none.
        """
        own = self.own
        pairs = [each.weights for each in own]
        better, found = [], []
        for pair in weights:
            bounds = replace(own[nearest(pair, pairs)], weights=pair, least=0.0)
            strategy, _ = self._best_known(bounds, (), 0.0)
            memory, time, _ = self.graph.cost(pair, strategy)
            least = float(self._costs_for(pair).min())
            if pair[0] * time + pair[1] * memory < least * (1 - NEGLIGIBLE):
                better.append(pair)
                found.append(strategy)
        return self._know(better, found) if found else None

    def hull(self) -> Hull:
        """The hull of the supported points found so far."""
        memory, time = self._costs
        order = reduce_points(memory, time)
        order = order[hull_of(memory[order], time[order])]
        return Hull(memory[order], time[order], self._states[order], self._strategies[order])

    def _between(self, weights: Weights, known: Sequence[Bounds], slack: float) -> Bounds | None:
        """Interpolate bounds from those of the two nearest pairs of weights, one on either side.

        A cost for these weights is a mean of the costs for the two. None where new bounds are as
        quick, see `bound`.
        """
        if weights[0] != 1 or not self._states.size:
            return None
        before = [each for each in known if each.weights[0] == 1 and each.weights[1] < weights[1]]
        behind = [each for each in known if each.weights[0] == 1 and each.weights[1] > weights[1]]
        if not before or not behind:
            return None
        low = max(before, key=lambda each: each.weights[1])
        high = min(behind, key=lambda each: each.weights[1])
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

    def _know(self, weights: Sequence[Weights], found: Sequence[Int32Array]) -> Points:
        """Add supported points by their states, and return them; each is cheap for its weights."""
        states = np.array(found)
        memory, time, chosen = zip(
            *(self.graph.cost(pair, own) for pair, own in zip(weights, states, strict=True)),
            strict=True,
        )
        strategies = self.graph.pointers.unroll_sets(np.array(chosen), self.graph.size)
        points = Points(np.array(memory), np.array(time), strategies)
        self._states = np.concatenate([self._states, states])
        self._strategies = np.concatenate([self._strategies, points.strategies])
        costs = np.array([points.memory, points.time])
        self._costs = np.concatenate([self._costs, costs], axis=1)
        return points

    def _learn(self, bounds: Bounds) -> None:
        """Add bounds, or keep the higher of each where bounds for the weights exist."""
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
        """Return the cheapest known strategy for the bounds' weights and its cost.

        ``more`` are considered, too; without any strategy one is made near the bounds. Unless the
        cheapest costs at most a share ``enough`` more than its bound, the cheapest strategies are
        recombined: an exact search goes over their configurations and promising ones. Each may have
        parts that fit together, where bounds see equal costs of parts that do not.
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
