"""A part of a problem: some states of each node, lower bounds and supported points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from tensoropt.errors import SearchSizeError
from tensoropt.search.bounds.corner_gaps import Corners
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, warm_bounds
from tensoropt.search.bounds.passes import sweep_additions
from tensoropt.search.branching.known_points import Points
from tensoropt.search.branching.least_cost import least_cost
from tensoropt.search.effort import INHERITED_MESSAGES
from tensoropt.search.exact.linearise import simplify
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.flat.fewer_states import NEW, fewer_states
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.limits import SearchLimits
from tensoropt.search.pareto.hull import hull_of
from tensoropt.search.pareto.reduce import reduce_points
from tensoropt.search.pareto.region import Weights
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods
from tensoropt.search.tolerances import FEW_CELLS

__all__ = ["NO_CORNERS", "Hull", "Subproblem"]

NO_CORNERS = np.zeros(0), np.zeros(0)
"""No corners."""


class Hull(NamedTuple):
    """The lower hull of a part's supported points, by ascending memory.

    Attributes:
        memory, time: int64[points].
        states: int32[points, nodes of the part].
        strategies: int32[points, nodes of the whole problem].
    """

    memory: Int64Array
    time: Int64Array
    states: Int32Array
    strategies: Int32Array

    def slope(self, edge: int) -> float:
        """Nanoseconds per byte from one point to the next."""
        high = self.time[edge] - self.time[edge + 1]
        return float(high / (self.memory[edge + 1] - self.memory[edge]))

    def edges_below(self, memory: Float64Array) -> Int64Array:
        """int64[any], which edge is below each memory, the first or last beyond the ends."""
        after = np.searchsorted(self.memory, memory, side="left")
        return np.clip(after - 1, 0, max(self.memory.size - 2, 0))


class Subproblem:
    """Some states of a graph's nodes.

    Attributes:
        graph: with these alone, without nodes of which one is left.
        table: its bounds.
        bounds: for some weights, of the part or, without messages, of a larger one.
        given: other weights, and what strategies of a larger part cost at least for them.
        window: memory and time of the corners below which the part is searched; None for all.
        closed: of corners below which it, or a larger one, has been searched, or another part is.
        failed: states for which an exact search took too much, infinite if none did.
        is_simple: whether nodes of which few points come have been eliminated.
    """

    def __init__(
        self,
        graph: FlatGraph,
        bounds: Sequence[Bounds] = (),
        given: Sequence[tuple[Weights, float]] = (),
        table: WeightedBounds | None = None,
        *,
        is_simple: bool = False,
    ) -> None:
        self.graph, self.bounds, self.given = graph, list(bounds), list(given)
        self.table = WeightedBounds(graph) if table is None else table
        self.window: Corners | None = None
        self.closed: Corners = NO_CORNERS
        self.failed = np.inf
        self.is_simple = is_simple
        self._near: Neighbourhoods | None = None
        self._states = np.zeros((0, self.nodes), dtype=np.int32)  # of supported points
        self._strategies = np.zeros((0, graph.size), dtype=np.int32)
        self._costs = np.zeros((2, 0), dtype=np.int64)  # memory and time of these
        self._begin: list[Bounds] = []  # of a larger part, with messages to begin with

    @property
    def nodes(self) -> int:
        """How many there are."""
        return self.start.size - 1

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

    @property
    def own(self) -> list[Bounds]:
        """The bounds that are of the part itself, not of a larger one."""
        return [each for each in self.bounds if each.messages.size]

    def mixtures(self, hull: Hull, points: Int64Array) -> Subproblem:
        """All that mixes some supported points of the hull."""
        alive = np.zeros(self.configurations, dtype=np.bool_)
        alive[self.start[:-1] + hull.states[points]] = True
        return Subproblem(fewer_states(self.graph, alive).graph)

    def only(self, alive: BoolArray, inherited: Sequence[int] = ()) -> Subproblem:
        """With some of its states, of each node at least one.

        Args:
            alive: bool[states of all nodes].
            inherited: which of the bounds hold there, too, until there are closer ones.
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
            for each in (self.bounds[number] for number in inherited[:INHERITED_MESSAGES])
            if each.messages.size
        ]
        part.window, part.closed, part.failed = self.window, self.closed, self.failed
        return part

    def simplified(self, limits: SearchLimits) -> Subproblem:
        """The same without nodes of which few points come, to be bounded anew; or itself, if
        there are more of these than limits allow."""
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
        """Weights, and what every strategy of the part costs at least for them."""
        return [*self.given, *((each.weights, each.least) for each in self.bounds)]

    def is_loose(self, hull: Hull, edge: int, share: float) -> bool:
        """Whether an edge of the hull costs more than by a share above what all strategies cost at
        least for its slope: as bounds for that say, or those for the two slopes beside it, whose
        mean it is."""
        slope = hull.slope(edge)
        lines = [(pair[1], least) for pair, least in self.lines() if pair[0] == 1]
        worth, least = np.array(sorted(lines)).T
        known = float(np.interp(slope, worth, least, left=0.0, right=0.0))
        return float(hull.time[edge] + slope * hull.memory[edge]) > known * (1 + share)

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

    def learn(self, bounds: Sequence[Bounds], known: Points) -> None:
        """Take bounds, and strategies of a part that is the whole problem."""
        for each in bounds:
            self._learn(each)
        self._know(known.strategies, known)

    def bound(
        self, weights: Sequence[Weights], sweeps: int, enough: float, slack: float
    ) -> tuple[Points, float, int]:
        """Find the strategy of least cost for each of some weights, and bounds that are as high, as
        far as message passing can prove it.

        Args:
            weights: pairs of them.
            sweeps: of bounds for them.
            enough: share by which a strategy may cost more than bounds say.
            slack: share. Where bounds of other weights say already that a configuration costs by so
                much more than the least strategy known, these are its bounds.

        Returns:
            These strategies, of the whole problem, for each of the weights; the additions that it
            took, and for how many of the weights.
        """
        if self._near is None:
            self._near = Neighbourhoods(self.table)
        found: list[Int32Array] = []
        own = self.own
        begun = {pair: self._between(pair, own, slack) for pair in weights}
        anew = [pair for pair in weights if begun[pair] is None]
        spent, swept = sweep_additions(sweeps, self.cells, len(anew)), 0
        begun.update(
            zip(anew, warm_bounds(self.table, anew, sweeps, [*self._begin, *own]), strict=True)
        )
        for bounds in begun.values():
            assert bounds is not None
            known, cost = self._best_known(self._near, bounds, found)
            closer, strategy, additions = least_cost(
                self.table,
                self._near,
                bounds,
                known,
                cost,
                enough,
                0.0 if bounds.weights in anew else slack,
            )
            spent += additions
            swept += bounds.weights in anew or additions > 0
            self._learn(closer)
            found.append(strategy)
        states = np.array(found)
        memory, time, chosen = zip(
            *(self.graph.cost(pair, own) for pair, own in zip(weights, states, strict=True)),
            strict=True,
        )
        strategies = self.graph.pointers.unroll_sets(np.array(chosen), self.graph.size)
        points = Points(np.array(memory), np.array(time), strategies)
        self._know(states, points)
        return points, spent, swept

    def hull(self) -> Hull:
        """Of the supported points that were found."""
        memory, time = self._costs
        order = reduce_points(memory, time)
        order = order[hull_of(memory[order], time[order])]
        return Hull(memory[order], time[order], self._states[order], self._strategies[order])

    def _between(self, weights: Weights, known: Sequence[Bounds], slack: float) -> Bounds | None:
        """Bounds that those of the two nearest pairs of weights, one on either side, make: a cost
        for these weights is a mean of those for the two. None where they leave so much that sweeps
        of all are as quick, see `bound`."""
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

    def _know(self, states: Int32Array, points: Points) -> None:
        """Take supported points, and their states."""
        self._states = np.concatenate([self._states, states])
        self._strategies = np.concatenate([self._strategies, points.strategies])
        costs = np.array([points.memory, points.time])
        self._costs = np.concatenate([self._costs, costs], axis=1)

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
        if self._states.size:
            memory, time = self._costs
            costs = bounds.weights[0] * time + bounds.weights[1] * memory
            strategies.append(self._states[int(costs.argmin())])
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
