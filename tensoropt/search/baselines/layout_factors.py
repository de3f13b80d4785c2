"""What one choice of mesh dimensions for named dimensions costs, as a sum of small tables.

Mesh-TensorFlow's layout says for every named dimension which mesh dimension splits it, if any. An
operator's configuration follows from the names in its iteration space, so its costs are a table
over those, and an edge's a table over the names at both of its ends. Tables over the same names are
added up, which makes repeated layers that share their names one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tensoropt.arrays import BoolArray, Int8Array, Int32Array, Int64Array
from tensoropt.parallel.assignments import NO_INDEX
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.problem.model import Edge, EdgeKind
from tensoropt.search.baselines.named_dimensions import NamedDimensions
from tensoropt.search.baselines.nearest import leader_assignments, nearest_options

__all__ = ["Factor", "LayoutFactors", "Names"]

Names = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Factor:
    """Costs over some names. A row is a number with a digit for each name, the first the highest:
    0 where nothing splits it, q where mesh dimension q - 1 does.

    Attributes:
        memory, time: int64[rows].
        allowed: bool[rows], whether no operator has two names on one mesh dimension.
    """

    memory: Int64Array
    time: Int64Array
    allowed: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The option that each row of digits gives a node, and whether it is allowed; nodes that are
    alike share it."""

    options: Int64Array
    allowed: BoolArray


@dataclass(frozen=True, slots=True)
class _Node:
    """One node's names that can be split, and what each row of their digits is."""

    names: Names
    rows: _Rows


@dataclass(slots=True, eq=False)
class LayoutFactors:
    """The costs of all layouts on one mesh.

    Args:
        problem: what is planned.
        dimensions: names of all indices.
        mesh_dimensions: the mesh axes that each mesh dimension is made of.

    Attributes:
        factors: by names, ascending.
    """

    problem: GraphProblem
    dimensions: NamedDimensions
    mesh_dimensions: Sequence[Sequence[int]]
    factors: dict[Names, Factor] = field(init=False, default_factory=dict)
    _nodes: list[_Node] = field(init=False, default_factory=list)
    _digits: dict[int, Int64Array] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        alike: dict[tuple[bytes, Names], _Rows] = {}
        for number, node in enumerate(self.problem.problem.nodes):
            own = self._node(number, alike)
            self._nodes.append(own)
            options, allowed = own.rows.options, own.rows.allowed
            self._add(own.names, node.memory[options], node.time[options], allowed)
        edges: dict[
            tuple[EdgeKind, _Node, _Node], tuple[Names, Int64Array, Int64Array, BoolArray]
        ] = {}
        for edge in self.problem.problem.edges:
            near, far = self._nodes[edge.source], self._nodes[edge.target]
            key = edge.kind, near, far
            if key not in edges:
                edges[key] = self._edge(edge, near, far)
            self._add(*edges[key])

    @property
    def base(self) -> int:
        """How many values a digit has."""
        return len(self.mesh_dimensions) + 1

    def strategies(self, layouts: Int8Array) -> Int32Array:
        """int32[S, nodes], the option of every node under layouts int8[S, names]."""
        found = np.zeros((len(layouts), len(self._nodes)), dtype=np.int32)
        for number, node in enumerate(self._nodes):
            found[:, number] = node.rows.options[self.rows(layouts, node.names)]
        return found

    def rows(self, layouts: Int8Array, names: Names) -> Int64Array:
        """int64[S], the row of a factor over ``names`` for each layout."""
        row = np.zeros(len(layouts), dtype=np.int64)
        for name in names:
            row = row * self.base + layouts[:, name]
        return row

    def _node(self, number: int, alike: dict[tuple[bytes, Names], _Rows]) -> _Node:
        assigned = leader_assignments(self.problem, number)
        of_index = self.dimensions.of_operator[self.problem.choices[number].leader]
        # A loader splits the batch whatever the layout: what it is split by is not asked.
        used = sorted({*assigned.ravel().tolist()} - {NO_INDEX}) if len(assigned) > 1 else []
        used.sort(key=lambda index: of_index[index])
        key = assigned.tobytes(), tuple(used)
        if key not in alike:
            alike[key] = self._options(assigned, used)
        return _Node(tuple(of_index[index] for index in used), alike[key])

    def _options(self, assigned: Int8Array, used: Sequence[int]) -> _Rows:
        """The option, and whether it is allowed, for all digits of the indices in ``used``."""
        digits = self._all_digits(len(used))
        wanted = np.full((len(digits), assigned.shape[1]), NO_INDEX, dtype=np.int8)
        allowed = np.ones(len(digits), dtype=bool)
        for number, axes in enumerate(self.mesh_dimensions):
            on = digits == number + 1
            allowed &= on.sum(axis=1) <= 1
            if used:
                index = np.where(on.any(axis=1), np.array(used)[on.argmax(axis=1)], NO_INDEX)
                wanted[:, list(axes)] = index.astype(np.int8)[:, None]
        options = np.zeros(len(digits), dtype=np.int64)
        options[allowed] = nearest_options(assigned, wanted[allowed])
        return _Rows(options, allowed)

    def _all_digits(self, count: int) -> Int64Array:
        """int64[base ** count, count], the digits of every row."""
        if count not in self._digits:
            rows = np.arange(self.base**count)
            places = self.base ** np.arange(count - 1, -1, -1)
            self._digits[count] = rows[:, None] // places % self.base
        return self._digits[count]

    def _edge(
        self, edge: Edge, near: _Node, far: _Node
    ) -> tuple[Names, Int64Array, Int64Array, BoolArray]:
        names = tuple(sorted({*near.names, *far.names}))
        digits = self._all_digits(len(names)).astype(np.int8)
        place = {name: number for number, name in enumerate(names)}
        ends = [
            (node, self.rows(digits, tuple(place[name] for name in node.names)))
            for node in (near, far)
        ]
        source, target = (node.rows.options[rows] for node, rows in ends)
        cell = edge.source_slots[source], edge.target_slots[target]
        allowed = near.rows.allowed[ends[0][1]] & far.rows.allowed[ends[1][1]]
        return names, edge.memory[cell], edge.time[cell], allowed

    def _add(self, names: Names, memory: Int64Array, time: Int64Array, allowed: BoolArray) -> None:
        if names not in self.factors:
            self.factors[names] = Factor(memory.copy(), time.copy(), allowed.copy())
            return
        factor = self.factors[names]
        factor.memory += memory
        factor.time += time
        factor.allowed &= allowed
