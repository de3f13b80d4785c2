"""The cost of an assignment of mesh dimensions to named dimensions, as a sum of small tables.

Mesh-TensorFlow's layout gives for every named dimension the mesh dimension that splits it, if any.
The configuration of an operator follows from the names in its iteration space, so its costs are a
table over these names. The costs of an edge are a table over the names at both of its ends. Tables
over the same names are added, so repeated layers that share their names become one table.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tensoropt.arrays import Int8Array, Int32Array, Int64Array
from tensoropt.parallel.assignments import NO_INDEX
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.problem.model import Edge
from tensoropt.search.baselines.named_dimensions import NamedDimensions
from tensoropt.search.baselines.nearest import leader_assignments, nearest_options

__all__ = ["LayoutFactors", "Names"]

Names: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Options:
    """For each row of digits the option of a node, and whether two of its names are on one mesh
    dimension; equal nodes share this object."""

    numbers: Int64Array
    clashes: Int64Array


class LayoutFactors:
    """The costs of all layouts on one mesh.

    Args:
        problem: the planned problem.
        dimensions: names of all indices.
        mesh_dimensions: for each mesh dimension its mesh axes.

    Attributes:
        base: number of values of a name's digit: 0 if nothing splits it, q if mesh dimension q - 1
            does.
        factors: by names, ascending, int64[rows, 3]: memory, time, and the number of operators with
            two names on one mesh dimension. The number of a row has a digit for each name, the
            highest first.
    """

    def __init__(
        self,
        problem: GraphProblem,
        dimensions: NamedDimensions,
        mesh_dimensions: Sequence[Sequence[int]],
    ) -> None:
        self.base = len(mesh_dimensions) + 1
        self.factors: dict[Names, Int64Array] = {}
        self._nodes: list[tuple[Names, _Options]] = []
        alike: dict[tuple[bytes, tuple[int, ...]], _Options] = {}
        for number, node in enumerate(problem.problem.nodes):
            assigned = leader_assignments(problem, number)
            name_of = dimensions.of_operator[problem.choices[number].leader]
            # A loader splits the batch in any layout, so its split is not part of the layout.
            split = {*assigned.ravel().tolist()} - {NO_INDEX} if len(assigned) > 1 else ()
            used = tuple(sorted(split, key=name_of.__getitem__))
            key = assigned.tobytes(), used
            if key not in alike:
                alike[key] = self._options(assigned, used, mesh_dimensions)
            own, names = alike[key], tuple(name_of[index] for index in used)
            self._nodes.append((names, own))
            costs = node.memory[own.numbers], node.time[own.numbers], own.clashes
            self._add(names, np.stack(costs, axis=1))
        edges: dict[Hashable, Int64Array] = {}
        for edge in problem.problem.edges:
            ends = self._nodes[edge.source], self._nodes[edge.target]
            names = tuple(sorted({*ends[0][0], *ends[1][0]}))
            kind = edge.kind, ends
            if kind not in edges:
                edges[kind] = self._edge(edge, ends, names)
            self._add(names, edges[kind])

    def strategies(self, layouts: Int8Array) -> Int32Array:
        """int32[S, nodes], the option of every node under layouts int8[S, names]."""
        found = np.zeros((len(layouts), len(self._nodes)), dtype=np.int32)
        for number, (names, own) in enumerate(self._nodes):
            found[:, number] = own.numbers[self.rows(layouts, names)]
        return found

    def rows(self, layouts: Int8Array, names: Names) -> Int64Array:
        """int64[S], the row of a factor over ``names`` for each layout."""
        row = np.zeros(len(layouts), dtype=np.int64)
        for name in names:
            row = row * self.base + layouts[:, name]
        return row

    def _options(
        self,
        assigned: Int8Array,
        used: Sequence[int],
        mesh_dimensions: Sequence[Sequence[int]],
    ) -> _Options:
        """The options for all digits of the indices in ``used``."""
        digits = self._digits(len(used))
        wanted = np.full((len(digits), assigned.shape[1]), NO_INDEX, dtype=np.int8)
        clashes = np.zeros(len(digits), dtype=np.int64)
        for number, axes in enumerate(mesh_dimensions):
            on = digits == number + 1
            clashes |= on.sum(axis=1) > 1
            if used:
                index = np.where(on.any(axis=1), np.array(used)[on.argmax(axis=1)], NO_INDEX)
                wanted[:, list(axes)] = index[:, None]
        options = np.zeros(len(digits), dtype=np.int64)
        options[clashes == 0] = nearest_options(assigned, wanted[clashes == 0])
        return _Options(options, clashes)

    def _digits(self, count: int) -> Int8Array:
        """int8[base ** count, count], the digits of every row."""
        places = self.base ** np.arange(count - 1, -1, -1)
        digits: Int64Array = np.arange(self.base**count)[:, None] // places % self.base
        return digits.astype(np.int8)

    def _edge(self, edge: Edge, ends: Sequence[tuple[Names, _Options]], names: Names) -> Int64Array:
        digits = self._digits(len(names))
        source, target = (
            own.numbers[self.rows(digits, tuple(names.index(name) for name in some))]
            for some, own in ends
        )
        cell = edge.source_slots[source], edge.target_slots[target]
        memory, time = edge.memory[cell], edge.time[cell]
        return np.stack([memory, time, np.zeros_like(time)], axis=1)

    def _add(self, names: Names, costs: Int64Array) -> None:
        self.factors[names] = self.factors[names] + costs if names in self.factors else costs
