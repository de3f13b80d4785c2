"""Lower bounds on strategies by message passing (TRW-S).

A strategy's weighted cost u * time + w * memory is a sum of costs of nodes and edges. A *message*
moves cost from an edge to the slots of a node at one of its ends, or back. No strategy's sum
changes (a reparametrisation), and no edge's cost becomes negative. So at any time

    sum over nodes i of min_k cost_i(k)       bounds every strategy from below, and
    that sum - min_k cost_j(k) + cost_j(k)    every strategy in which j has configuration k.

Messages are passed in the order of sequential tree-reweighted message passing (Kolmogorov,
"Convergent tree-reweighted message passing for energy minimization", 2006): nodes in order, then in
reverse. Each node divides its cost equally among the edges ahead of it, and each edge passes as
much as it can to its far end. On a tree the bounds are exact after one sweep forward and one back;
elsewhere they grow from sweep to sweep. A sweep takes O(L**2) for an edge between L slots. Pendant
trees are folded into the other nodes before the first sweep, and take no part in it. After the last
sweep the bounds are those of a spanning tree (`pendant_trees`), which are exact on it.

Costs of edges are rounded down to units of about 2**-30 of a table's largest, and nodes pass whole
units: rounding makes bounds lower, not wrong. Costs of nodes are float64; callers allow for
`ROUNDING`, which is more than all roundings of a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int32Array, Int64Array, offsets_of
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.passes import (
    ENDLESS,
    Tables,
    fewer_tables,
    receive,
    sweep,
    sweep_additions,
    to_units,
    whole_units,
)
from tensoropt.search.bounds.pendant_trees import (
    Walk,
    pass_along,
    pendant_edges,
    residual_costs,
    spanning_tree,
)
from tensoropt.search.effort import MERGED, WEIGHTS
from tensoropt.search.flat.fewer_ends import fewer_ends
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.pareto.region import Weights
from tensoropt.search.threads import in_threads, threads_for
from tensoropt.search.tolerances import LARGEST_MESSAGE
from tensoropt.search.watch import look_at_clock

__all__ = ["Bounds", "WeightedBounds", "nearest", "warm_bounds"]


# Most cells of tables for one set of weights that are kept for the next request: 64 MiB.
_KEPT_CELLS = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Lower bounds for one pair of weights.

    Attributes:
        weights: of a nanosecond and of a byte.
        least: a bound on every strategy.
        min_marginals: float64[configurations of all nodes], bounds on the strategies with each.
        messages: float64[slots of all edges], from the edges to the nodes at their ends: first to
            the sources' slots, edge by edge, then to the targets'.
    """

    weights: Weights
    least: float
    min_marginals: Float64Array
    messages: Float64Array


class WeightedBounds:
    """A graph, and its lower bounds for any weights.

    Args:
        graph: with costs that are not negative.

    Attributes:
        graph: see above.
        ends: the ends of its edges.
        start: int64[nodes + 1], where each node's configurations begin.
        memory, time: of the configurations of all nodes.
        has_memory: whether an edge takes memory.
        cells: the number of cells of all edges.
    """

    def __init__(self, graph: Problem | FlatGraph) -> None:
        self.graph = FlatGraph.of(graph) if isinstance(graph, Problem) else graph
        self.ends, self.start = self.graph.ends, self.graph.ends.start
        self.memory, self.time = self.graph.memory, self.graph.time
        self._parts = self.graph.cells
        self._kind = np.array(self.graph.kind, dtype=np.int64)
        sizes = np.array([self.ends.source.sizes, self.ends.target.sizes])
        self._places = int(sizes.sum())
        self.cells = int(sizes.prod(axis=0).sum())
        self._byte_worth = self.graph.byte_worth
        pairs = self.ends.source.node.tolist(), self.ends.target.node.tolist()
        self._pendant = pendant_edges(self.start.size - 1, *pairs)
        self._core_nodes, self._core_edges, self._core_ends = self.ends.without(
            self._pendant.edges
        )  # of the 2-core
        self._tree: Walk | None = None
        takes = np.array([part.memory is not None for part in self._parts], dtype=np.bool_)
        self._takes_memory = takes[self._kind]
        self.has_memory = bool(takes.any())
        # The positions of messages of edges that take memory.
        of_edges = np.repeat(np.tile(self._takes_memory, 2), sizes.ravel())
        self._own_messages = np.flatnonzero(of_edges)
        self._of_time = self._in_units([(1.0, 0.0)], np.flatnonzero(~takes))
        self._only: Tables | None = None
        self._last: tuple[tuple[Weights, ...], Tables] | None = None

    def fewer(self, weights: Weights, alive: BoolArray) -> tuple[WeightedBounds, Int64Array]:
        """Return the graph with some of its configurations, for one pair of weights.

        Args:
            weights: of a nanosecond and of a byte.
            alive: bool[configurations of all nodes], at least one of each node.

        Returns:
            The smaller graph, and the old number of each message that is left. For the same weights
                bounds may begin with these messages.
        """
        ends, messages = fewer_ends(self.ends, alive)
        tables = fewer_tables(self.ends, self.tables([weights]), ends, messages)
        smaller = copy(self)
        smaller.start, smaller.ends, smaller._only = ends.start, ends, tables
        smaller.memory, smaller.time = self.memory[alive], self.time[alive]
        smaller.cells, smaller._places = tables.own.size, messages.size
        sides = [
            side._replace(first=core.first, edges=core.edges)
            for side, core in zip(ends[2:], self._core_ends[2:], strict=True)
        ]
        smaller._core_ends = ends._replace(source=sides[0], target=sides[1])
        smaller._own_messages = messages[:0]
        smaller._tree = smaller._last = None
        return smaller, messages

    def tables(self, weights: Sequence[Weights]) -> Tables:
        """Return the tables of all edges for some pairs of weights.

        Where a nanosecond weighs 1 in all pairs, edges without memory share their tables among all
        weights. The tables of the last weights are kept if they have few cells.
        """
        if self._only is not None:
            return self._only
        key, last = tuple(weights), self._last
        if last is not None and last[0] == key:
            return last[1]
        is_own = self._takes_memory
        if any(pair[0] != 1 for pair in weights):
            is_own = np.ones(is_own.size, dtype=np.bool_)
        shared, starts, scales = self._of_time
        own, own_starts, own_scales = self._in_units(weights, np.unique(self._kind[is_own]))
        first = np.where(is_own, own_starts[:, self._kind], starts[:, self._kind])
        scale = np.where(is_own, own_scales[:, self._kind], scales[:, self._kind])
        # Contiguous whatever the indexing made: sweeps are compiled for each memory order.
        first, scale = np.ascontiguousarray(first), np.ascontiguousarray(scale)
        units = Tables(shared, own, is_own, first, scale)
        if own.size <= _KEPT_CELLS:
            self._last = key, units
        return units

    def _in_units(
        self, weights: Sequence[Weights], parts: Int64Array
    ) -> tuple[Int32Array, Int64Array, Float64Array]:
        """Return distinct tables in whole units, for each pair of weights.

        Returns:
            int32[all cells], and for each pair of weights and table where it begins and its scale.
        """
        sizes = [self._parts[part].count for part in parts.tolist()]
        starts = offsets_of(sizes * len(weights))
        flat = np.empty(starts[-1], dtype=np.int32)
        firsts = np.zeros((len(weights), len(self._parts)), dtype=np.int64)
        scales = np.ones(firsts.shape)

        def fill(place: int) -> None:
            line, number = divmod(place, parts.size)
            part = int(parts[number])
            costs = np.asarray(self._parts[part].least(weights[line]), np.float64)
            scale = scales[line, part] = whole_units(float(costs.max()))
            firsts[line, part] = starts[place]
            to_units(costs, scale, flat[starts[place] : starts[place + 1]])

        places = range(parts.size * len(weights))
        in_threads(fill, places, MERGED * flat.size)
        return flat, firsts, scales

    def prepare(self) -> None:
        """Compute the data that all weights share, before several threads ask for bounds."""
        if self._tree is None:
            self.bounds(1.0, self._byte_worth, 1)

    def bounds(self, per_nanosecond: float, per_byte: float, sweeps: int) -> Bounds:
        """Return the bounds after some sweeps forward and back."""
        (line,) = self.all_bounds([(per_nanosecond, per_byte)], sweeps, [None])
        return line

    def all_bounds(
        self,
        weights: Sequence[Weights],
        sweeps: int,
        begin: Sequence[Float64Array | None],
    ) -> list[Bounds]:
        """Return the `bounds` of several pairs of weights, in sweeps that they share.

        Args:
            weights: nanoseconds weigh 1 in all of them, or in none.
            sweeps: the number of sweeps.
            begin: for each pair the messages to begin with, from bounds in which a nanosecond
                weighs as much. Messages of edges that take memory begin anew.
        """
        if not (self.has_memory or any(pair[0] for pair in weights)):
            return [self._of_memory(per_byte) for _, per_byte in weights]
        tables, costs, messages = self._initial(weights, begin)
        least = np.minimum.reduceat(costs, self.start[:-1], axis=1)
        best = np.full(costs.shape, -np.inf)
        moved = costs, least, best, messages
        order, ends = self._core_nodes, self._core_ends
        for _ in range(sweeps if self._core_edges.size else 0):
            look_at_clock()
            sweep(order, ends, tables, True, *moved)
            sweep(order[::-1].copy(), ends, tables, False, *moved)
        return self._tree_bounds(weights, tables, costs, best, messages)

    def _initial(
        self, weights: Sequence[Weights], begin: Sequence[Float64Array | None]
    ) -> tuple[Tables, Float64Array, Float64Array]:
        """Return tables, nodes' costs and messages before the first sweep."""
        shares = np.array(weights)[:, :, None]
        costs = shares[:, 0] * self.time + shares[:, 1] * self.memory
        messages = np.zeros((len(weights), self._places))
        least = np.minimum.reduceat(costs, self.start[:-1], axis=1).sum(axis=1)
        for row, known, most in zip(messages, begin, LARGEST_MESSAGE * least, strict=True):
            if known is not None and _largest_message(known) <= most:
                row[:] = known
                row[self._own_messages] = 0.0
        receive(costs, messages, self.ends)
        tables = self.tables(weights)
        pass_along(self._pendant, self.ends, tables, costs, costs, messages)
        return tables, costs, messages

    def _tree_bounds(
        self,
        weights: Sequence[Weights],
        tables: Tables,
        costs: Float64Array,
        best: Float64Array,
        messages: Float64Array,
    ) -> list[Bounds]:
        """Return the bounds of a spanning forest, or those of the sweeps where they are higher."""
        passed = messages.copy()
        tree = self._spanning_tree(tables, messages)
        pass_along(tree, self.ends, tables, costs, costs, messages)
        walk = self._pendant.then(tree)
        source, target = self.ends.source.node, self.ends.target.node
        children = np.where(walk.is_ahead, source[walk.edges], target[walk.edges])
        roots = np.delete(np.arange(self.start.size - 1), children)
        least = np.minimum.reduceat(costs, self.start[:-1], axis=1)[:, roots]
        total = least.sum(axis=1)
        bounds = costs.copy()
        for root, own in zip(roots, least.T, strict=True):
            own_places = slice(self.start[root], self.start[root + 1])
            bounds[:, own_places] += (total - own)[:, None]
        pass_along(walk.back(), self.ends, tables, bounds, costs, messages)
        np.maximum(bounds, best, out=bounds)
        # Every strategy has one configuration of each node.
        of_nodes = np.minimum.reduceat(bounds, self.start[:-1], axis=1)
        return [
            Bounds(pair, float(own), each, moved)
            for pair, own, each, moved in zip(
                weights, of_nodes.max(axis=1), bounds, passed, strict=True
            )
        ]

    def _spanning_tree(self, tables: Tables, messages: Float64Array) -> Walk:
        """A spanning tree of the 2-core, with the edges of the largest residual costs.

        The tree of the first weights serves all weights, so that a table is read once for all.
        """
        if self._tree is None:
            left = residual_costs(self.ends, tables, messages[0])
            pairs = self.ends.source.node, self.ends.target.node
            self._tree = spanning_tree(self.start.size - 1, *pairs, self._core_edges, left)
        return self._tree

    def _of_memory(self, per_byte: float) -> Bounds:
        """Return the bounds where edges cost nothing."""
        costs = per_byte * self.memory
        least = np.minimum.reduceat(costs, self.start[:-1])
        total = float(least.sum())
        each = np.repeat(total - least, np.diff(self.start))
        return Bounds((0.0, per_byte), total, each + costs, np.zeros(self._places))


def _largest_message(messages: Float64Array) -> float:
    """Return the largest message of either sign, except at slots that no configuration has."""
    sizes = np.abs(messages)
    return float(sizes.max(initial=0.0, where=sizes < ENDLESS / 2))


def warm_bounds(
    table: WeightedBounds,
    weights: Sequence[Weights],
    sweeps: int,
    earlier: Sequence[Bounds] = (),
) -> list[Bounds]:
    """Return the bounds of all weights, on several threads if they have enough work.

    Each begins with the messages of the earlier bounds for the nearest weights.
    """
    table.prepare()
    timed = [each for each in earlier if each.weights[0] == 1]
    pairs = [each.weights for each in timed]
    near = {
        pair: timed[nearest(pair, pairs)].messages if timed and pair[0] == 1 else None
        for pair in weights
    }
    alike = [pair for pair in weights if pair[0] == 1]
    additions = sweep_additions(sweeps, table.cells, len(weights))
    count = max(1, min(WEIGHTS, -(-len(alike) // threads_for(additions))))
    groups = [[pair] for pair in weights if pair[0] != 1]
    groups += [alike[first : first + count] for first in range(0, len(alike), count)]

    def find(group: list[Weights]) -> list[Bounds]:
        return table.all_bounds(group, sweeps, [near[pair] for pair in group])

    parts = in_threads(find, groups, additions)
    bounds = {
        pair: each
        for group, part in zip(groups, parts, strict=True)
        for pair, each in zip(group, part, strict=True)
    }
    return [bounds[pair] for pair in weights]


def nearest(pair: Weights, pairs: Sequence[Weights]) -> int:
    """Return the number of the nearest pair of weights, by the ratio of the weights of a byte.

    Pairs with the same weight of a nanosecond come first, if there are any.
    """
    tiny = np.finfo(np.float64).tiny
    ratios = [
        abs(np.log(per_byte + tiny) - np.log(pair[1] + tiny))
        if per_nanosecond == pair[0]
        else np.inf
        for per_nanosecond, per_byte in pairs
    ]
    return int(np.argmin(ratios))
