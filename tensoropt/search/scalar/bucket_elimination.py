"""The exact least sum of tables, by eliminating one node after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

import numba
import numpy as np

from tensoropt.arrays import Int32Array, Int64Array, offsets_of
from tensoropt.problem.model import Edge, Problem
from tensoropt.search.elimination_queue import EliminationQueue

__all__ = ["Elimination", "fastest"]

Scope = tuple[int, ...]
"""The nodes that costs depend on, by ascending number."""


def fastest(problem: Problem, most_cells: int) -> Int32Array | None:
    """Return int32[nodes], a strategy of least time; None where a table would have too many cells.

    Of equally good choices for a node the first is made.
    """
    counts = np.array([node.configurations for node in problem.nodes])
    kinds = {edge.kind: _times(edge) for edge in problem.edges}
    tables = [*(node.time for node in problem.nodes), *(kinds[edge.kind] for edge in problem.edges)]
    scopes: list[Scope] = [(node,) for node in range(counts.size)]
    scopes += [(edge.source, edge.target) for edge in problem.edges]
    order = Elimination.of(counts.tolist(), scopes, (counts > 1).tolist())
    strategy = order.least(counts, np.concatenate([table.ravel() for table in tables]), most_cells)
    return None if strategy is None else strategy.astype(np.int32)


def _times(edge: Edge) -> Int64Array:
    times: Int64Array = edge.time[edge.source_slots[:, None], edge.target_slots]
    return times


class Elimination(NamedTuple):
    """An order of elimination, for any terms with given scopes.

    Bucket elimination (Dechter, 1999): the least over a node's choices, of the sum of all terms
    with the node, is a term over its neighbours. The node with the smallest new term is next. The
    time is proportional to the cells of all tables that are added.

    Attributes:
        scope_first, scope: the scope of every term, given terms first, then those that steps make.
        nodes: int64[steps], the node that each step eliminates.
        input_first, inputs: the terms that each step adds.
        given: the number of given terms.
    """

    scope_first: Int64Array
    scope: Int64Array
    nodes: Int64Array
    input_first: Int64Array
    inputs: Int64Array
    given: int

    @classmethod
    def of(
        cls, counts: Sequence[int], scopes: Sequence[Scope], free: Sequence[bool]
    ) -> Elimination:
        """Return a good order for nodes with some ``counts`` of choices.

        Args:
            counts: of every node.
            scopes: of the given terms.
            free: whether a node may have several choices; other nodes are in no scope.
        """
        terms = [tuple(node for node in scope if free[node]) for scope in scopes]
        own: list[set[int]] = [set() for _ in counts]
        beside: list[set[int]] = [set() for _ in counts]
        for number, scope in enumerate(terms):
            for node in scope:
                own[node].add(number)
                beside[node].update(scope)
        queue: EliminationQueue[int] = EliminationQueue()
        for node in np.flatnonzero(free).tolist():
            queue.set(node, _cells(counts, {*beside[node], node}))
        nodes, inputs = [], []
        while (best := queue.pop()) is not None:
            node, _ = best
            rest = tuple(sorted(beside[node] - {node}))
            nodes.append(node)
            inputs.append(sorted(own[node]))
            for number in inputs[-1]:
                for member in terms[number]:
                    if member != node:
                        own[member].discard(number)
            for other in rest:
                own[other].add(len(terms))
                beside[other].update(rest)
                beside[other].discard(node)
                queue.set(other, _cells(counts, {*beside[other], other}))
            terms.append(rest)
        return cls(*_rows(terms), np.array(nodes, dtype=np.int64), *_rows(inputs), len(scopes))

    def least(self, counts: Int64Array, tables: Int64Array, most_cells: int) -> Int64Array | None:
        """Return the choice for every node with the least sum; None where tables would be too
        large.

        Args:
            counts: the number of choices of each node.
            tables: the cells of all given terms, one term after the other.
            most_cells: the most cells of a table.
        """
        first = _places(self, counts, most_cells)
        if first.size == 0:
            return None
        cells = np.empty(first[-1], dtype=np.int64)
        cells[: tables.size] = tables
        choices: Int64Array = _eliminate(self, counts, first, cells)
        return choices


def _cells(counts: Sequence[int], nodes: Iterable[int]) -> int:
    return prod(counts[node] for node in nodes)


def _rows(rows: Sequence[Sequence[int]]) -> tuple[Int64Array, Int64Array]:
    """Return where each row begins, and all rows joined."""
    first = offsets_of([len(row) for row in rows])
    return first, np.array([number for row in rows for number in row], dtype=np.int64)


@numba.njit(cache=True, nogil=True)
def _places(order: Elimination, counts: Int64Array, most_cells: int) -> Int64Array:
    """Return where the cells of every term begin; empty where a table has too many."""
    scope_first, scope, nodes, given = order.scope_first, order.scope, order.nodes, order.given
    first = np.zeros(scope_first.size, dtype=np.int64)
    for term in range(scope_first.size - 1):
        cells = 1
        limit = most_cells // counts[nodes[term - given]] if term >= given else np.int64(2**62)
        for place in range(scope_first[term], scope_first[term + 1]):
            cells *= counts[scope[place]]
            if cells > limit:
                return np.zeros(0, dtype=np.int64)
        if cells > limit:
            return np.zeros(0, dtype=np.int64)
        first[term + 1] = first[term] + cells
    return first


@numba.njit(cache=True, nogil=True)
def _eliminate(
    order: Elimination, counts: Int64Array, first: Int64Array, cells: Int64Array
) -> Int64Array:
    """Do all steps; return the choices with the least sum."""
    scope_first, scope, nodes, input_first, inputs, given = order
    best = np.zeros(first[-1] - first[given], dtype=np.int32)
    for step in range(nodes.size):
        node, term = nodes[step], given + step
        rest = scope[scope_first[term] : scope_first[term + 1]]
        used = inputs[input_first[step] : input_first[step + 1]]
        places = np.empty(used.size, dtype=np.int64)
        strides = np.zeros((used.size, rest.size + 1), dtype=np.int64)
        for number in range(used.size):
            places[number] = first[used[number]]
            stride = 1
            for place in range(
                scope_first[used[number] + 1] - 1, scope_first[used[number]] - 1, -1
            ):
                member, axis = scope[place], 0
                while axis < rest.size and rest[axis] != member:  # the node itself comes last
                    axis += 1
                strides[number, axis] = stride
                stride *= counts[member]
        out = cells[first[term] : first[term + 1]]
        at = first[term] - first[given]
        _least(counts, rest, counts[node], places, strides, cells, out, best[at:])
    choices = np.zeros(counts.size, dtype=np.int64)
    for step in range(nodes.size - 1, -1, -1):
        term = given + step
        cell = first[term] - first[given]
        for position in range(scope_first[term], scope_first[term + 1]):
            stride = 1
            for other in scope[position + 1 : scope_first[term + 1]]:
                stride *= counts[other]
            cell += choices[scope[position]] * stride
        choices[nodes[step]] = best[cell]
    return choices


@numba.njit(cache=True, nogil=True)
def _least(
    counts: Int64Array,
    rest: Int64Array,
    choices: int,
    places: Int64Array,
    strides: Int64Array,
    cells: Int64Array,
    out: Int64Array,
    best: Int32Array,
) -> None:
    """Write the least sum of some terms over one node's choices, and the choice, for all other
    choices."""
    last = rest.size - 1
    width = counts[rest[last]] if last >= 0 else 1
    index = np.zeros(rest.size, dtype=np.int64)
    total = np.empty(width, dtype=np.int64)
    for begin in range(0, out.size, width):
        into, choice = out[begin : begin + width], best[begin : begin + width]
        for number in range(choices):
            alike = np.int64(0)
            total[:] = 0
            for term in range(places.size):
                place = places[term] + number * strides[term, rest.size]
                step = strides[term, last] if last >= 0 else 0
                if step == 0:
                    alike += cells[place]
                elif step == 1:
                    row = cells[place : place + width]
                    for column in range(width):
                        total[column] += row[column]
                else:
                    for column in range(width):
                        total[column] += cells[place + column * step]
            if number == 0:
                for column in range(width):
                    into[column] = total[column] + alike
                    choice[column] = 0
            else:
                for column in range(width):
                    cost = total[column] + alike
                    if cost < into[column]:
                        into[column] = cost
                        choice[column] = number
        for axis in range(last - 1, -1, -1):
            index[axis] += 1
            for term in range(places.size):
                places[term] += strides[term, axis]
            if index[axis] < counts[rest[axis]]:
                break
            for term in range(places.size):
                places[term] -= strides[term, axis] * index[axis]
            index[axis] = 0
