"""The graph that eliminations simplify: frontiers for each node's states and each edge's slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.problem.model import EdgeKind, Problem
from tensoropt.search.bounds.pruning_context import BoundSet, PruningContext
from tensoropt.search.exact.compact_edges import Compact, compact
from tensoropt.search.exact.memo import Memo
from tensoropt.search.exact.tightening import least_of_rows, moved_along_edges
from tensoropt.search.pareto.back_pointers import Derivations
from tensoropt.search.pareto.frontier import ELIMINATIONS, Points, product
from tensoropt.search.pareto.region import SearchRegion
from tensoropt.search.pareto.table import Cells, Table, joint_keys, multiply

__all__ = ["SearchGraph", "joint_near_slots"]


def _merge_parallel(
    first: Cells, second: Cells, derivations: Derivations, memo: Memo | None
) -> Cells:
    """Edge elimination (paper, equation 5): one edge between the pairs of slots that occur."""
    near, near_states = joint_keys([first.near_slots, second.near_slots], first.near_slots.size)
    far, far_states = joint_keys([first.far_slots, second.far_slots], first.far_slots.size)
    rows = [
        np.add.outer(
            cells.near_slots[near_states] * cells.far_count, cells.far_slots[far_states]
        ).ravel()
        for cells in (first, second)
    ]
    count = near_states.size * far_states.size

    def compute(tables: list[Table], names: Derivations) -> Table:
        one, other = tables
        return multiply(one, other, (rows[0], rows[1], np.arange(count)), count, names)

    tables = [first.table, second.table]
    if memo is None:
        table = compute(tables, derivations)
    else:
        slots = [first.near_slots, first.far_slots, second.near_slots, second.far_slots]
        table = memo.table("edge", tables, slots, compute, derivations)
        near, far = memo.same(near), memo.same(far)
    return Cells(
        near,
        far,
        near_states.size,
        far_states.size,
        table,
        first.near_given[first.near_slots[near_states]]
        + second.near_given[second.near_slots[near_states]],
        first.far_given[first.far_slots[far_states]]
        + second.far_given[second.far_slots[far_states]],
        first.inside + second.inside,
    )


class SearchGraph:
    """Nodes with states, at most one edge between two nodes, and what is already decided.

    Edges have no direction for the search: they are stored from the lower numbered node and seen
    from either end. Parallel edges are merged the moment they arise.

    Attributes:
        nodes: for each remaining node its states' frontiers.
        constant: the frontier of everything that no longer depends on any remaining node.
        counts: how often each kind of elimination was applied.
        is_pruned_out: whether nothing is left of the graph, as no strategy lies in the search
            region. Then it is not to be searched further.
        size: how many nodes the problem has.
        derivations: what the identities of all points stand for.
        memo: of eliminations that may be alike, while there are known ones.
        inside: for each remaining node float64[W], the least costs of what has been eliminated
            into it and its own; W is the number of weights that potentials are for, maybe 0.

    Args:
        problem: what is searched.
        known: to drop points by that better no known strategy; None to keep them all.
    """

    def __init__(self, problem: Problem, known: PruningContext | None = None) -> None:
        self._bound_set: BoundSet | None = None
        self.is_pruned_out = False
        self.size = len(problem.nodes)
        weights = 0 if known is None else known.per_byte.size
        self.derivations = Derivations()
        self.memo: Memo | None = None
        alike: dict[tuple[bytes, bytes], Table] = {}
        self.nodes = {}
        for number, node in enumerate(problem.nodes):
            name = node.memory.tobytes(), node.time.tobytes()
            table = alike.setdefault(name, Table.single(node.memory, node.time))
            own = self.derivations.leaves(number, node.configurations)
            self.nodes[number] = replace(table, identity=own)
        self.constant = Points.unit()
        self.counts = dict.fromkeys(ELIMINATIONS, 0)
        self._edges: dict[tuple[int, int], Cells] = {}
        self._neighbours: dict[int, set[int]] = {number: set() for number in self.nodes}
        self._ascending: dict[int, list[int]] = {}
        self.inside = {number: np.zeros(weights) for number in self.nodes}
        self._settled = np.zeros(weights)
        known_edges: dict[EdgeKind, Compact] = {}
        for number, edge in enumerate(problem.edges):
            if edge.kind not in known_edges:
                known_edges[edge.kind] = compact(edge)
            found = known_edges[edge.kind]
            cells = found.cells if known is None else found.between(*known.messages(number))
            self.connect(edge.source, edge.target, cells)
        if known is not None:
            self._begin(known)

    def _begin(self, known: PruningContext) -> None:
        """Least costs of all nodes, of which there are as many edges as now; and what they drop."""
        total = np.zeros(known.per_byte.size)
        for node, table in self.nodes.items():
            costs = self.given(node) + (
                np.multiply.outer(table.time, known.per_nanosecond)
                + np.multiply.outer(table.memory, known.per_byte)
            )
            self.inside[node] = costs.min(axis=0)
            total += self.inside[node]
        self._bound_set = BoundSet(known.per_nanosecond, known.per_byte, total, known.region)
        for node, table in self.nodes.items():
            self.nodes[node] = self.undominated(table, self.given(node) - self.inside[node])
        for node in self.nodes:
            self.tidy(node)

    def begin(
        self, weights: tuple[Float64Array, Float64Array], region: SearchRegion, sweeps: int
    ) -> dict[int, Float64Array]:
        """Find bounds for some weights, whatever was known before, and drop points by them.

        Args:
            weights: float64[W] each, of a nanosecond and of a byte.
            region: of the known strategies.
            sweeps: how often costs are moved along all edges and back.

        Returns:
            For each node float64[states, W], below every strategy with this state.
        """
        none = np.zeros(weights[0].size)
        tables = [*self.nodes.values(), _one_row(self.constant)]
        *parts, (self._settled,) = (part.T for part in least_of_rows(tables, weights))
        costs = dict(zip(self.nodes, parts, strict=True))
        self.inside = {node: own.min(axis=0) for node, own in costs.items()}
        least = np.sum([self._settled, *self.inside.values()], axis=0)
        above = {node: own - self.inside[node] for node, own in costs.items()}
        moved = moved_along_edges(above, self._edges, weights, sweeps)
        for ends, (near, far) in moved.edges.items():
            self._edges[ends] = replace(
                self._edges[ends], near_given=near, far_given=far, inside=none
            )
        for node, own in costs.items():
            self.inside[node] = (own + self.given(node)).min(axis=0)
        total = np.sum([self._settled, *self.inside.values()], axis=0)
        self._bound_set = BoundSet(*weights, total, region)
        found = {node: least + own for node, own in moved.nodes.items()}
        if region.is_everywhere:
            return found
        alive = {node: np.flatnonzero(self._bound_set.possible(own)) for node, own in found.items()}
        self.restrict(alive)
        if self.is_pruned_out:
            return found
        found = {node: own[alive[node]] for node, own in found.items()}
        self.constant = self.undominated(_one_row(self.constant), -self._settled[None]).points
        for ends, cells in self._edges.items():
            if not cells.table.is_single:
                self._edges[ends] = replace(cells, table=self.undominated(cells.table, cells.rest))
        for node, table in list(self.nodes.items()):
            self.nodes[node] = self.undominated(table, self.given(node) - self.inside[node])
        for node in self.nodes:
            found[node] = found[node][self.tidy(node)]
        return found

    def copy(self) -> SearchGraph:
        """Another graph of the same, to be simplified by itself; derivations are common."""
        other = object.__new__(SearchGraph)
        other.__dict__.update(self.__dict__)
        other.nodes, other.inside = dict(self.nodes), dict(self.inside)
        other.counts, other._edges = dict(self.counts), dict(self._edges)
        other._neighbours = {node: set(near) for node, near in self._neighbours.items()}
        other._ascending = {}
        return other

    def given(self, node: int, but: int = -1) -> Float64Array:
        """float64[states, W]: what the edges of ``node`` but the one to ``but`` have given it."""
        found = np.zeros((self.states(node), self.inside[node].size))
        if found.shape[1] == 0:
            return found
        for far in self.neighbours(node):
            if far != but:
                first, last = min(node, far), max(node, far)
                cells = self._edges[first, last]
                found += (
                    cells.near_given[cells.near_slots]
                    if node == first
                    else cells.far_given[cells.far_slots]
                )
        return found

    def undominated(self, table: Table, rest: Float64Array) -> Table:
        """The points that strategies in the search region can have, if there is one.

        Where there are none, the graph is pruned out: every strategy has a point of each table.
        """
        if self._bound_set is None:
            return table
        found = self._bound_set.undominated(table, rest)
        self.is_pruned_out |= found.memory.size == 0
        return found

    def tidy(self, node: int) -> Int64Array:
        """Leave out states of ``node`` that are in no point, and slots that are in no state.

        Returns:
            Which of its states are left.
        """
        if self._bound_set is None:  # nothing has been dropped
            return np.arange(self.states(node))
        alive = self.nodes[node].sizes > 0
        for far in self.neighbours(node):
            first, last = min(node, far), max(node, far)
            cells = self._edges[first, last]
            if not cells.table.is_single:
                filled = (cells.table.sizes > 0).reshape(cells.near_count, cells.far_count)
                if node == first:
                    alive &= filled.any(axis=1)[cells.near_slots]
                else:
                    alive &= filled.any(axis=0)[cells.far_slots]
        kept = np.flatnonzero(alive)
        self.restrict({node: kept})
        return kept

    def restrict(self, kept: Mapping[int, Int64Array]) -> None:
        """Leave out all states of nodes but these, and slots that are in none of them.

        Where a node is left without any, the graph is pruned out instead.
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
            cells = self._edges[near, far]
            self._edges[near, far] = cells.restricted(fewer.get(near), fewer.get(far))

    def neighbours(self, node: int) -> list[int]:
        """The nodes that ``node`` has an edge with, ascending: the same list until they change."""
        if node not in self._ascending:
            self._ascending[node] = sorted(self._neighbours[node])
        return self._ascending[node]

    def degree(self, node: int) -> int:
        """How many neighbours ``node`` has."""
        return len(self._neighbours[node])

    def states(self, node: int) -> int:
        """How many states ``node`` has."""
        return self.nodes[node].rows

    def edge(self, near: int, far: int) -> Cells:
        """The edge between two nodes, seen from ``near``."""
        if near < far:
            return self._edges[near, far]
        return self._edges[far, near].flip()

    def stored(self, near: int, far: int) -> Cells:
        """The edge between two nodes, seen from the lower numbered."""
        return self._edges[min(near, far), max(near, far)]

    def near_slots(self, near: int, far: int) -> Int64Array:
        """int64[states of near], their slots on the edge to ``far``."""
        if near < far:
            return self._edges[near, far].near_slots
        return self._edges[far, near].far_slots

    def connect(self, near: int, far: int, cells: Cells) -> None:
        """Add an edge, seen from ``near``, and merge it with one that is there already."""
        if far in self._neighbours[near]:
            if near > far:
                near, far, cells = far, near, cells.flip()
            cells = _merge_parallel(self.edge(near, far), cells, self.derivations, self.memo)
            self.counts["edge"] += 1
        if self._bound_set is not None and not cells.table.is_single:
            table = self.undominated(cells.table, cells.rest)
            cells = replace(cells, table=table)
        self._insert(near, far, cells)

    def _insert(self, near: int, far: int, cells: Cells) -> None:
        self._edges[min(near, far), max(near, far)] = cells if near < far else cells.flip()
        if far not in self._neighbours[near]:
            self._neighbours[near].add(far)
            self._neighbours[far].add(near)
            self._forget(near, far)

    def renumber(self, node: int, far: int, parents: Int64Array) -> None:
        """Give state ``s`` of ``node`` the slot of state ``parents[s]`` on the edge to ``far``."""
        ends = min(node, far), max(node, far)
        cells = self._edges[ends]
        slots = (cells.near_slots if node < far else cells.far_slots)[parents]
        if self.memo is not None:
            slots = self.memo.same(slots)
        self._edges[ends] = (
            replace(cells, near_slots=slots) if node < far else replace(cells, far_slots=slots)
        )

    def disconnect(self, near: int, far: int) -> Cells:
        """Take out an edge; it is returned as seen from ``near``."""
        cells = self.edge(near, far)
        self._drop(near, far)
        return cells

    def _drop(self, near: int, far: int) -> None:
        del self._edges[min(near, far), max(near, far)]
        self._neighbours[near].discard(far)
        self._neighbours[far].discard(near)
        self._forget(near, far)

    def _forget(self, *nodes: int) -> None:
        """The neighbours of some nodes have changed."""
        for node in nodes:
            self._ascending.pop(node, None)

    def remove(self, node: int) -> Table:
        """Take out a node and its remaining edges; its states are returned."""
        for neighbour in self.neighbours(node):
            self._drop(node, neighbour)
        del self._neighbours[node]
        return self.nodes.pop(node)

    def settle(self, points: Points, inside: Float64Array) -> None:
        """Multiply ``points``, which nothing else depends on, into the constant frontier."""
        if self.is_pruned_out:
            return
        found = product(self.constant, points, self.derivations)
        self._settled = self._settled + inside
        self.constant = self.undominated(_one_row(found), -self._settled[None]).points


def _one_row(points: Points) -> Table:
    return Table(np.array([0, len(points)]), points.memory, points.time, points.identity)


def joint_near_slots(graph: SearchGraph, node: int, but: int) -> tuple[Int64Array, Int64Array]:
    """``joint_keys`` of ``node``'s states over all its edges but the one to ``but``."""
    columns = [graph.near_slots(node, far) for far in graph.neighbours(node) if far != but]
    return joint_keys(columns, graph.states(node))
