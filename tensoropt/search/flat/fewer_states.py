"""A flat graph without the states that bounds rule out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tensoropt.arrays import BoolArray, Int64Array
from tensoropt.search.flat.fewer_ends import fewer_ends
from tensoropt.search.flat.flat_graph import Cells, FlatEdge, FlatGraph
from tensoropt.search.flat.incidence import Side
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.table import Table, multiply

__all__ = ["NEW", "FewerStates", "fewer_states"]

NEW = -1
"""The old number of a state that did not exist before."""

# A node's states may grow by at most this factor when neighbours are folded into it.
_GROWTH = 50
# Most points of a node that holds costs which depend on no choice.
_APART = 16


class FewerStates(NamedTuple):
    """A flat graph with fewer states.

    Attributes:
        graph: the smaller graph.
        states: int64[states of the smaller graph], the old number of each, or `NEW`.
        messages: int64[slots of all edges of the smaller graph], the old number of each message.
    """

    graph: FlatGraph
    states: Int64Array
    messages: Int64Array


def fewer_states(graph: FlatGraph, alive: BoolArray) -> FewerStates:
    """Return a graph with some of its states, without slots that no remaining state has.

    A node with one remaining state is folded into its neighbours: a state of the neighbour and a
    point of the cell between them become one state. An edge stays where that would make many
    states.

    Args:
        graph: the graph with all states.
        alive: bool[states of all nodes], at least one of each node.
    """
    ends, messages = fewer_ends(graph.ends, alive)
    names = graph.pointers
    nodes = [
        _Node(Table.single(graph.memory[own], graph.time[own], graph.identity[own]), own)
        for own in np.split(np.flatnonzero(alive), ends.start[1:-1])
    ]
    rest = Table.unit()
    cells: list[Cells] = []
    made: dict[tuple[int, bytes, bytes], int] = {}
    kept: list[tuple[int, FlatEdge]] = []
    before = _slots_before(graph.ends.source, ends.source, messages)
    beyond = _slots_before(graph.ends.target, ends.target, messages)
    for number, (edge, rows, columns) in enumerate(
        zip(graph.edges(ends), before, beyond, strict=True)
    ):
        key = edge.kind, rows.tobytes(), columns.tobytes()
        if key not in made:
            made[key] = len(cells)
            cells.append(graph.cells[edge.kind].take(rows, columns))
        own = cells[made[key]]
        free = [end for end, node in enumerate(edge.nodes) if nodes[node].is_free]
        if len(free) == 1 and nodes[edge.nodes[free[0]]].fold(own, edge.slots[free[0]], names):
            continue
        if not free and rest.memory.size * own.time.size <= _APART:
            rest = _product(rest, own.table, names)
            continue
        kept.append((number, edge._replace(kind=made[key])))
        for end in edge.nodes:
            nodes[end].stays = True
    of_kept = np.array([number for number, _ in kept], dtype=np.int64)
    stay = [
        messages[first : first + size]
        for side in (ends.source, ends.target)
        for first, size in zip(side.messages[of_kept], side.sizes[of_kept], strict=True)
    ]
    smaller, states = _joined(graph, nodes, [edge for _, edge in kept], cells, rest)
    return FewerStates(smaller, states, np.concatenate([messages[:0], *stay]))


def _joined(
    graph: FlatGraph,
    nodes: Sequence[_Node],
    edges: Sequence[FlatEdge],
    cells: Sequence[Cells],
    rest: Table,
) -> tuple[FlatGraph, Int64Array]:
    """The graph of the nodes that stay, and the number before of each of its states.

    Args:
        graph: the graph with all states.
        nodes: all nodes.
        edges: the edges that stay, with slots of the nodes' rows.
        cells: of these edges.
        rest: one row, the points of edges that no node's choice changes.
    """
    names = graph.pointers
    left = [number for number, node in enumerate(nodes) if node.stays]
    for node in nodes:
        if not node.stays:
            rest = _product(rest, node.table, names)
    tables, states = [nodes[each].table for each in left], [nodes[each].states for each in left]
    if left and rest.memory.size == 1:
        tables[0] = _product(tables[0], rest, names)
    else:
        tables.append(rest)
        states.append(np.full(rest.memory.size, NEW))
    place = {number: position for position, number in enumerate(left)}
    rows = {number: nodes[number].rows for number in left}
    renumbered = [
        FlatEdge((place[one], place[other]), (slots[rows[one]], beyond[rows[other]]), kind)
        for (one, other), (slots, beyond), kind in edges
    ]
    smaller = FlatGraph.joined(graph.size, names, tables, renumbered, cells)
    return smaller, np.concatenate(states)


class _Node:
    """The remaining states of a node, while neighbours are folded into it.

    Attributes:
        table: a row for each remaining state, with one point, or several once a neighbour was
            folded.
        is_free: whether several states remain.
        stays: whether the node is in the smaller graph.
    """

    def __init__(self, table: Table, states: Int64Array) -> None:
        self.table = table
        self.is_free = self.stays = states.size > 1
        self._states = states

    @property
    def rows(self) -> Int64Array:
        """int64[points], the row of each point."""
        return self.table.row_of_points

    @property
    def states(self) -> Int64Array:
        """int64[points], the old number of the state of each point."""
        return self._states[self.rows]

    def fold(self, cells: Cells, slots: Int64Array, names: BackPointers) -> bool:
        """Fold a neighbour with one state into this node, unless that makes too many points.

        Args:
            cells: the cells of the edge between them, a row for each slot of this node.
            slots: int64[rows], the slot of each row.
            names: the store of identities.

        Returns:
            Whether the neighbour was folded.
        """
        if cells.offsets is not None:
            points = int((self.table.sizes * np.diff(cells.offsets)[slots]).sum())
            if points > _GROWTH * self._states.size:
                return False
        every = np.arange(slots.size)
        self.table = multiply(self.table, cells.table, (every, slots, every), slots.size, names)
        return True


def _product(one: Table, other: Table, names: BackPointers) -> Table:
    """Multiply every row of a table with the only row of another table."""
    every = np.arange(one.rows)
    return multiply(one, other, (every, np.zeros_like(every), every), one.rows, names)


def _slots_before(whole: Side, fewer: Side, messages: Int64Array) -> Iterator[Int64Array]:
    """Yield the old numbers of the remaining slots at one end of each edge."""
    for first, begin, size in zip(
        whole.messages.tolist(), fewer.messages.tolist(), fewer.sizes.tolist(), strict=True
    ):
        yield messages[begin : begin + size] - first
