"""A graph to search in flat arrays: the states of nodes, and a frontier in every cell of an edge.

The graph is a problem as it is, or the rest of one after eliminations; a cell then has the points
of everything that was eliminated into its edge. Graphs that are restricted often, and bounded for
many weights, have this form: it has no object for each node.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int32Array, Int64Array, offsets_of
from tensoropt.problem.model import Problem
from tensoropt.search.flat.incidence import Incidence
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.region import Weights
from tensoropt.search.pareto.table import Table

__all__ = ["Cells", "FlatEdge", "FlatGraph"]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The frontiers of an edge, one for each pair of slots at its ends.

    Attributes:
        rows, columns: the number of slots at the source, and at the target.
        time: int64[points], of all cells, row by row.
        memory: int64[points]; None where no point takes memory.
        identity: int64[points], see `BackPointers`; None where no point chooses a configuration.
        offsets: int64[cells + 1], where the points of each cell begin; None where each cell has
            one.
    """

    rows: int
    columns: int
    time: Int64Array
    memory: Int64Array | None
    identity: Int64Array | None
    offsets: Int64Array | None

    @classmethod
    def of(cls, table: Table, rows: int, columns: int) -> Cells:
        """The cells of a table with a row for each pair of slots."""
        memory = table.memory if table.memory.any() else None
        identity = table.identity if table.identity.any() else None
        offsets = None if table.is_single else table.offsets
        return cls(rows, columns, table.time, memory, identity, offsets)

    @property
    def table(self) -> Table:
        """The same points as a table, with a row for each cell."""
        none = np.zeros(self.time.size, dtype=np.int64)
        offsets = np.arange(self.time.size + 1) if self.offsets is None else self.offsets
        memory = np.zeros_like(none) if self.memory is None else self.memory
        return Table(offsets, memory, self.time, none if self.identity is None else self.identity)

    def take(self, rows: Int64Array, columns: Int64Array) -> Cells:
        """The cells between some slots of the source and some of the target."""
        if self.offsets is not None:
            places = np.add.outer(rows * self.columns, columns).ravel()
            return Cells.of(self.table.take(places), rows.size, columns.size)

        def some(own: Int64Array | None) -> Int64Array | None:
            if own is None:
                return None
            return own.reshape(self.rows, self.columns).take(rows, 0).take(columns, 1).ravel()

        time = some(self.time)
        assert time is not None
        return Cells(rows.size, columns.size, time, some(self.memory), some(self.identity), None)

    @property
    def count(self) -> int:
        """The number of cells."""
        return self.rows * self.columns

    def costs(self, weights: Weights) -> npt.NDArray[Any]:
        """int64 or float64[points], the weighted cost of each point."""
        costs: npt.NDArray[Any] = self.time if weights[0] == 1 else weights[0] * self.time
        return costs if self.memory is None else costs + weights[1] * self.memory

    def least(self, weights: Weights) -> npt.NDArray[Any]:
        """int64 or float64[cells], the least weighted cost of each cell, and the highest cost of
        all points for a cell without any."""
        costs = self.costs(weights)
        if self.offsets is None:
            return costs
        filled = self.offsets[1:] > self.offsets[:-1]
        least = np.full(filled.size, costs.max())
        least[filled] = np.minimum.reduceat(costs, self.offsets[:-1][filled])
        return least

    def best(self, cell: int, weights: Weights) -> int:
        """The number of the point with the least weighted cost in a cell."""
        if self.offsets is None:
            return cell
        first, last = int(self.offsets[cell]), int(self.offsets[cell + 1])
        if last - first == 1:
            return first
        costs = weights[0] * self.time[first:last]
        if self.memory is not None:
            costs = costs + weights[1] * self.memory[first:last]
        return first + int(costs.argmin())


class FlatEdge(NamedTuple):
    """An edge of a flat graph.

    Attributes:
        nodes: the source and the target.
        slots: for each of both nodes int64[states], the slot of every state.
        kind: the number of the edge's cells.
    """

    nodes: tuple[int, int]
    slots: tuple[Int64Array, Int64Array]
    kind: int


@dataclass(frozen=True, slots=True, eq=False)
class FlatGraph:
    """Nodes with states, and edges between them.

    Attributes:
        size: the number of nodes of the whole problem.
        pointers: the store of all identities.
        memory, time, identity: int64[states of all nodes].
        ends: the ends of all edges; ``ends.start`` says where each node's states begin.
        kind: for each edge the number of its cells.
        cells: the distinct cells; edges may share them.
    """

    size: int
    pointers: BackPointers
    memory: Int64Array
    time: Int64Array
    identity: Int64Array
    ends: Incidence
    kind: Sequence[int]
    cells: Sequence[Cells]

    @classmethod
    def of(cls, problem: Problem) -> FlatGraph:
        """The graph of a problem as it is, with a state for each configuration."""
        nodes, edges = problem.nodes, problem.edges
        pointers = BackPointers()
        states = [
            (node.memory, node.time, pointers.leaves(number, node.configurations))
            for number, node in enumerate(nodes)
        ]
        number = {each: place for place, each in enumerate(dict.fromkeys(e.costs for e in edges))}
        cells = [
            Cells(
                each.time.shape[0],
                each.time.shape[1],
                each.time.reshape(-1),
                each.memory.reshape(-1) if each.memory.any() else None,
                None,
                None,
            )
            for each in number
        ]
        kind = [number[edge.costs] for edge in edges]
        maps = [[edge.kind.maps[end] for edge in edges] for end in (0, 1)]
        slots = {each: each.slots for each in itertools.chain(*maps)}
        at = dict(zip(slots, offsets_of([own.size for own in slots.values()]), strict=False))
        ends = Incidence.of(
            offsets_of([node.configurations for node in nodes]),
            list(slots.values()),
            ([edge.source for edge in edges], [edge.target for edge in edges]),
            [[at[each] for each in own] for own in maps],
            _sizes(kind, cells),
        )
        memory, time, identity = (np.concatenate(own) for own in zip(*states, strict=True))
        return cls(len(nodes), pointers, memory, time, identity, ends, kind, cells)

    @classmethod
    def joined(
        cls,
        size: int,
        pointers: BackPointers,
        nodes: Sequence[Table],
        edges: Sequence[FlatEdge],
        cells: Sequence[Cells],
    ) -> FlatGraph:
        """Make a graph of nodes and edges.

        Args:
            size, pointers: see the attributes.
            nodes: the points of each node; every point is a state.
            edges: their slots are those of the states.
            cells: the distinct cells.
        """
        memory, time, identity = (
            np.concatenate([getattr(own, name) for own in nodes])
            for name in ("memory", "time", "identity")
        )
        kind = [edge.kind for edge in edges]
        slots = [edge.slots[end] for end in (0, 1) for edge in edges]
        places = offsets_of([own.size for own in slots])
        ends = Incidence.of(
            offsets_of([own.memory.size for own in nodes]),
            slots,
            [[edge.nodes[end] for edge in edges] for end in (0, 1)],
            (places[: len(edges)], places[len(edges) : -1]),
            _sizes(kind, cells),
        )
        return cls(size, pointers, memory, time, identity, ends, kind, cells)

    @property
    def byte_worth(self) -> float:
        """Nanoseconds per byte: the sum of the nodes' least times over that of their least
        memories."""
        memory, time = (
            int(np.minimum.reduceat(own, self.ends.start[:-1]).sum())
            for own in (self.memory, self.time)
        )
        return max(time, 1) / max(memory, 1)

    def cost(self, weights: Weights, strategy: Int32Array) -> tuple[int, int, Int64Array]:
        """Return memory, time and the chosen identities of a strategy.

        In each cell the point is chosen that costs least for some weights.

        Args:
            weights: of a nanosecond and of a byte.
            strategy: int32[nodes], a state of each node.
        """
        states = self.ends.start[:-1] + strategy
        memory, time = int(self.memory[states].sum()), int(self.time[states].sum())
        chosen = [self.identity[states]]
        row, column = (
            self.ends.slots[side.slots + strategy[side.node]]
            for side in (self.ends.source, self.ends.target)
        )
        places = (row * self.ends.target.sizes + column).tolist()
        identities = []
        for number, place in zip(self.kind, places, strict=True):
            cells = self.cells[number]
            point = cells.best(place, weights)
            time += cells.time.item(point)
            if cells.memory is not None:
                memory += cells.memory.item(point)
            if cells.identity is not None:
                identities.append(cells.identity.item(point))
        chosen.append(np.array(identities, dtype=np.int64))
        return memory, time, np.concatenate(chosen)

    def edges(self, ends: Incidence | None = None) -> Iterator[FlatEdge]:
        """Yield all edges; ``ends`` may restrict them to some states."""
        ends = self.ends if ends is None else ends
        counts = np.diff(ends.start).tolist()
        source, target = (
            zip(side.node.tolist(), side.slots.tolist(), strict=True)
            for side in (ends.source, ends.target)
        )
        for (near, at), (far, there), kind in zip(source, target, self.kind, strict=True):
            own = ends.slots[at : at + counts[near]]
            others = ends.slots[there : there + counts[far]]
            yield FlatEdge((near, far), (own, others), kind)


def _sizes(kind: Sequence[int], cells: Sequence[Cells]) -> Int64Array:
    """int64[2, edges], the number of slots at both ends."""
    sizes = [(cells[number].rows, cells[number].columns) for number in kind]
    return np.array(sizes, dtype=np.int64).reshape(-1, 2).T
