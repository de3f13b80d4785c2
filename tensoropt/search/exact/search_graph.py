"""The graph that eliminations simplify: frontiers for each node's states and each edge's slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array, offsets_of
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.bound_set import BoundSet
from tensoropt.search.bounds.message_passing import WeightedBounds, warm_bounds
from tensoropt.search.bounds.passes import sweep_additions
from tensoropt.search.effort import MERGED, MESSAGE_PRICE, PRUNED_AGAIN
from tensoropt.search.exact.edge_table import EdgeTable, End, edge_table, merge_parallel
from tensoropt.search.flat.flat_graph import Cells, FlatEdge, FlatGraph
from tensoropt.search.flat.joint_slots import joint_keys
from tensoropt.search.like_subgraphs import Compute, Memo
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.frontier import ELIMINATIONS
from tensoropt.search.pareto.region import SearchRegion, Weights
from tensoropt.search.pareto.table import Table, multiply
from tensoropt.search.tolerances import MOST

__all__ = ["SearchGraph", "joint_near_slots"]


class Pruning(NamedTuple):
    """The arguments of the last pruning of a graph, and the additions left at that time."""

    weights: Sequence[Weights]
    region: SearchRegion
    sweeps: int
    additions: float


class SearchGraph:
    """Nodes with states, at most one edge between two nodes, and a constant.

    Edges have no direction: they are stored from the lower numbered node and seen from either end.
    Parallel edges are merged at once.

    If there are bounds for W weights, nodes and edges hold the costs that message passing has moved
    between them. The sum of all nodes' least costs bounds every strategy. A partial strategy
    exceeds its share of that sum by its own cost and `messages` less `least`. Eliminations keep
    this: an eliminated node hands its least costs on to a neighbour.

    Attributes:
        size: the number of nodes of the problem.
        limits: see below.
        nodes: the frontiers of the states of each remaining node.
        constant: one row, the frontier of everything that no longer depends on a remaining node.
        counts: how often each kind of elimination was applied.
        is_pruned_out: whether no strategy lies in the search region. The graph must not be searched
            further then.
        pointers: the store of all identities.
        memo: of eliminations, while like ones are worked out once; else None.
        grain: nanoseconds by which the points of a row are apart, if not all are wanted; else 0.
        least: for each remaining node float64[W], the least costs of its states with their
            messages, and of the nodes that were eliminated into it.

    Args:
        problem: the problem to search, or the rest of one.
        limits: of points, additions and states.
    """

    def __init__(self, problem: Problem | FlatGraph, limits: SearchLimits = DEFAULT_LIMITS) -> None:
        flat = FlatGraph.of(problem) if isinstance(problem, Problem) else problem
        self.size = flat.size
        self.limits = limits
        self.pointers = flat.pointers.branch(limits.table_points, limits.table_additions)
        self.memo: Memo | None = None
        self.grain = 0
        self.nodes: dict[int, Table] = {}
        alike: dict[tuple[bytes, bytes], Table] = {}
        for number, (first, last) in enumerate(pairwise(flat.ends.start.tolist())):
            memory, time = flat.memory[first:last], flat.time[first:last]
            costs = memory.tobytes(), time.tobytes()
            table = alike.setdefault(costs, Table.single(memory, time))
            self.nodes[number] = replace(table, identity=flat.identity[first:last])
        self.constant = Table.unit()
        self.counts = dict.fromkeys(ELIMINATIONS, 0)
        self.is_pruned_out = False
        self.least = {number: np.zeros(0) for number in self.nodes}
        self._settled = np.zeros(0)
        self._bound_set: BoundSet | None = None
        self._pruning: Pruning | None = None
        self._edges: dict[tuple[int, int], EdgeTable] = {}
        self._neighbours: dict[int, tuple[int, ...]] = dict.fromkeys(self.nodes, ())
        kinds: dict[tuple[int, bytes, bytes], EdgeTable] = {}
        for edge in flat.edges():
            one, other = edge.slots
            key = edge.kind, one.tobytes(), other.tobytes()
            if key not in kinds:
                kinds[key] = edge_table(edge, flat.cells[edge.kind])
            self.connect(*edge.nodes, kinds[key])

    def flat(self) -> FlatGraph:
        """Return the remaining graph, which has no bounds yet, in flat arrays.

        Every point of a node becomes a state. The constant becomes a node of its own, unless it is
        one point, which is added to the first node.
        """
        tables = [self.nodes[node] for node in sorted(self.nodes)]
        if tables and self.constant.memory.size == 1:
            every = np.arange(tables[0].rows)
            triples = every, np.zeros_like(every), every
            tables[0] = multiply(tables[0], self.constant, triples, every.size, self.pointers)
        else:
            tables.append(self.constant)
        return self._flat(tables, self.pointers.branch())

    def _flat(self, tables: Sequence[Table], pointers: BackPointers) -> FlatGraph:
        """Return the graph in flat arrays.

        ``tables`` has the points of all nodes, in ascending order.
        """
        place = {node: number for number, node in enumerate(sorted(self.nodes))}
        state = [table.row_of_points for table in tables]
        numbers: dict[int, int] = {}
        cells: list[Cells] = []
        edges: list[FlatEdge] = []
        for (near, far), edge in self._edges.items():
            if id(edge.table) not in numbers:
                numbers[id(edge.table)] = len(cells)
                cells.append(Cells.of(edge.table, edge.near_count, edge.far_count))
            one, other = place[near], place[far]
            slots = edge.near_slots[state[one]], edge.far_slots[state[other]]
            edges.append(FlatEdge((one, other), slots, numbers[id(edge.table)]))
        return FlatGraph.joined(self.size, pointers, tables, edges, cells)

    def bound(self, weights: Sequence[Weights], sweeps: int) -> dict[int, Float64Array]:
        """Replace the bounds of the graph by those for some weights.

        Args:
            weights: W pairs.
            sweeps: how often messages are passed along all edges and back.

        Returns:
            For each node float64[states, W]: lower bounds on the strategies with each state.
        """
        order = sorted(self.nodes)
        tables = [self.nodes[node] for node in order]
        lines = warm_bounds(WeightedBounds(self._flat(tables, self.pointers)), weights, sweeps)
        self._settled = self.constant.least(weights)[0]
        messages = np.array([line.messages for line in lines]).T
        sizes = [edge.near_count for edge in self._edges.values()]
        sizes += [edge.far_count for edge in self._edges.values()]
        parts = np.split(messages, offsets_of(sizes)[1:-1])
        for ends, near, far in zip(self._edges, parts, parts[len(self._edges) :], strict=False):
            self._edges[ends] = replace(self._edges[ends], near_messages=near, far_messages=far)
        self.least = {
            node: (table.least(weights) + self.messages(node)).min(axis=0)
            for node, table in zip(order, tables, strict=True)
        }
        of_points = np.array([line.min_marginals for line in lines]).T
        starts = offsets_of([table.memory.size for table in tables])[1:-1]
        return {
            node: self._settled + table.least_of_rows(own)
            for node, table, own in zip(order, tables, np.split(of_points, starts), strict=True)
        }

    def prune(self, weights: Sequence[Weights], region: SearchRegion, sweeps: int) -> None:
        """Compute bounds, and drop all points outside the search region, now and in later
        eliminations."""
        bounds = self.bound(weights, sweeps)
        least = np.sum([self._settled, *self.least.values()], axis=0)
        bound_set = self._bound_set = BoundSet(weights, region, least)
        self.restrict({n: np.flatnonzero(bound_set.possible(own)) for n, own in bounds.items()})
        if self.is_pruned_out:
            return
        self.constant = self.undominated(self.constant, -self._settled[None])
        for ends, edge in self._edges.items():
            if not edge.table.is_single:
                self._edges[ends] = edge.with_table(self.undominated(edge.table, edge.rest))
        for node, table in self.nodes.items():
            self.nodes[node] = self.undominated(table, self.messages(node) - self.least[node])
        for node in self.nodes:
            self.tidy(node)
        self._pruning = Pruning(weights, region, sweeps, self.pointers.additions)

    def prune_again(self) -> bool:
        """Prune again once eliminations have cost several times as much; return whether it
        happened.

        Bounds of the remaining graph are closer. A graph with a grain is not pruned again.
        """
        if self._pruning is None or self.grain or not self._edges or self.is_pruned_out:
            return False
        weights, region, sweeps, additions = self._pruning
        taken = additions - self.pointers.additions
        takes = MESSAGE_PRICE * (len(self.nodes) + len(self._edges))
        if taken < PRUNED_AGAIN * takes:  # points need not be counted
            return False
        takes += sweep_additions(sweeps, self.points, len(weights)) / MERGED
        if taken < PRUNED_AGAIN * takes:
            return False
        self.pointers.spend(takes)
        self.prune(weights, region, sweeps)
        return True

    def copy(self, limits: SearchLimits | None = None) -> SearchGraph:
        """Return an independent copy, within limits of its own if given."""
        other = object.__new__(SearchGraph)
        other.__dict__.update(self.__dict__)
        other.limits = limits or self.limits
        other.pointers = self.pointers.branch(
            other.limits.table_points, other.limits.table_additions
        )
        other.nodes, other.least = dict(self.nodes), dict(self.least)
        other.counts, other._edges = dict(self.counts), dict(self._edges)
        other._neighbours = dict(self._neighbours)
        if self._pruning is not None:
            other._pruning = self._pruning._replace(additions=other.pointers.additions)
        return other

    def made(
        self, kind: str, tables: list[Table], slots: Sequence[Int64Array], compute: Compute
    ) -> Table:
        """Apply ``compute`` to tables, through the memo if there is one; see `Memo.table`.

        The memo's tables are made without bounds, which differ between like subgraphs: callers drop
        points afterwards.
        """
        if self.memo is None:
            return compute(tables, self.pointers)
        bound_set, self._bound_set = self._bound_set, None
        try:
            return self.memo.table(kind, tables, slots, compute, self.pointers)
        finally:
            self._bound_set = bound_set

    def messages(self, node: int, but: int = -1) -> Float64Array:
        """float64[states, W]: messages to ``node`` from all its edges, except the one to
        ``but``."""
        messages = np.zeros((self.states(node), self._settled.size))
        if messages.shape[1] == 0:
            return messages
        for far in self.neighbours(node):
            if far != but:
                end = self.end(node, far)
                messages += end.messages[end.slots]
        return messages

    def undominated(self, table: Table, rest: Float64Array) -> Table:
        """Drop points outside the search region, if there is one, and those that the grain leaves
        out.

        If no point is left, the graph is pruned out: every strategy has a point of each table.
        """
        if self._bound_set is not None:
            table = self._bound_set.undominated(table, rest)
            self.is_pruned_out |= table.memory.size == 0
        if self.grain and not table.is_single:
            table = table.thinned(self.grain)
        return table

    def tidy(self, node: int) -> None:
        """Drop states of ``node`` without points, and slots without states."""
        if self._bound_set is None:  # nothing has been dropped
            return
        edges = [(far, self.stored(node, far)) for far in self.neighbours(node)]
        sparse = [(far, edge) for far, edge in edges if not edge.table.is_full]
        if not sparse and self.nodes[node].is_full:
            return
        alive = self.nodes[node].sizes > 0
        for far, edge in sparse:
            filled = (edge.table.sizes > 0).reshape(edge.near_count, edge.far_count)
            alive &= filled.any(axis=int(node < far))[self.end(node, far).slots]
        self.restrict({node: np.flatnonzero(alive)})

    def restrict(self, kept: Mapping[int, Int64Array]) -> None:
        """Keep some states of nodes, and the slots that these have.

        If a node would keep none, the graph is pruned out instead.
        """
        fewer = {node: own for node, own in kept.items() if own.size < self.states(node)}
        self.is_pruned_out |= any(own.size == 0 for own in fewer.values())
        if self.is_pruned_out:
            return
        for node, own in fewer.items():
            self.nodes[node] = self.nodes[node].take(own)
        for near, far in {
            (min(node, far), max(node, far)) for node in fewer for far in self._neighbours[node]
        }:
            edge = self._edges[near, far]
            self._edges[near, far] = edge.restrict(fewer.get(near), fewer.get(far))

    def neighbours(self, node: int) -> tuple[int, ...]:
        """The neighbours of ``node``, ascending."""
        return self._neighbours[node]

    def degree(self, node: int) -> int:
        """The number of neighbours of ``node``."""
        return len(self._neighbours[node])

    def states(self, node: int) -> int:
        """The number of states of ``node``."""
        return self.nodes[node].rows

    @property
    def is_alike(self) -> bool:
        """Whether many edges share a table, which edges of like subgraphs do (`Memo`)."""
        tables = {id(edge.table) for edge in self._edges.values()}
        return len(tables) <= MOST * len(self._edges)

    @property
    def points(self) -> int:
        """The number of points of all nodes and edges."""
        tables = [*self.nodes.values(), *(edge.table for edge in self._edges.values())]
        return sum(table.memory.size for table in tables)

    def edge(self, near: int, far: int) -> EdgeTable:
        """The edge between two nodes, seen from ``near``."""
        edge = self.stored(near, far)
        return edge if near < far else edge.flip()

    def stored(self, near: int, far: int) -> EdgeTable:
        """The edge between two nodes, seen from the lower numbered one."""
        return self._edges[min(near, far), max(near, far)]

    def end(self, node: int, far: int) -> End:
        """The end at ``node`` of its edge to ``far``."""
        edge = self.stored(node, far)
        return edge.near if node < far else edge.far

    def connect(self, near: int, far: int, edge: EdgeTable) -> None:
        """Add an edge, seen from ``near``, and merge it with an existing one."""
        if near > far:
            near, far, edge = far, near, edge.flip()
        if far in self._neighbours[near]:
            edge = merge_parallel(self._edges[near, far], edge, self.made)
            self.counts["edge"] += 1
        if self._bound_set is not None and not edge.table.is_single:
            edge = edge.with_table(self.undominated(edge.table, edge.rest))
        self._edges[near, far] = edge
        for node, other in ((near, far), (far, near)):
            self._neighbours[node] = tuple(sorted({*self._neighbours[node], other}))

    def renumber(self, node: int, far: int, parents: Int64Array) -> None:
        """Give state ``s`` of ``node`` the slot of state ``parents[s]`` on the edge to ``far``."""
        ends = min(node, far), max(node, far)
        edge = self._edges[ends]
        self._edges[ends] = (
            replace(edge, near_slots=edge.near_slots[parents])
            if node < far
            else replace(edge, far_slots=edge.far_slots[parents])
        )

    def disconnect(self, near: int, far: int) -> None:
        """Remove an edge."""
        del self._edges[min(near, far), max(near, far)]
        for node, other in ((near, far), (far, near)):
            self._neighbours[node] = tuple(far for far in self._neighbours[node] if far != other)

    def remove(self, node: int) -> None:
        """Remove a node and its remaining edges."""
        for neighbour in self.neighbours(node):
            self.disconnect(node, neighbour)
        del self._neighbours[node], self.nodes[node], self.least[node]

    def settle(self, points: Table, least: Float64Array) -> None:
        """Multiply one row of points, on which no node depends, into the constant.

        Args:
            points: the row.
            least: float64[W], the least costs of the points' nodes.
        """
        if self.is_pruned_out:
            return
        row = np.zeros(1, dtype=np.int64)
        product = multiply(self.constant, points, (row, row, row), 1, self.pointers)
        self._settled = self._settled + least
        self.constant = self.undominated(product, -self._settled[None])


def joint_near_slots(graph: SearchGraph, node: int, but: int) -> tuple[Int64Array, Int64Array]:
    """Apply ``joint_keys`` to the states of ``node``, over all its edges but the one to ``but``."""
    columns = [graph.end(node, far).slots for far in graph.neighbours(node) if far != but]
    return joint_keys(columns, graph.states(node))
