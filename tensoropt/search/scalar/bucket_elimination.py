"""The exact least sum of tables, by eliminating one node after the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
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


def fastest(problem: Problem, most_cells: int, most_additions: int) -> Int32Array | None:
    """Return int32[nodes], a strategy of least time; None where a step would be too large.

    Of equally good choices for a node the first is made.

    Args:
        problem: the problem.
        most_cells: the most cells of a table.
        most_additions: the most additions of a step, for each of the tables that it adds.
    """
    counts = np.array([node.configurations for node in problem.nodes])
    kinds: list[Hashable] = [node.time.tobytes() for node in problem.nodes]
    kinds += [edge.kind for edge in problem.edges]
    scopes: list[Scope] = [(node,) for node in range(counts.size)]
    scopes += [(edge.source, edge.target) for edge in problem.edges]
    order = Elimination.of(counts.tolist(), scopes, (counts > 1).tolist(), kinds)
    terms = [*problem.nodes, *problem.edges]
    tables = [
        _times(term) if isinstance(term, Edge) else term.time
        for term in (terms[place] for place in np.unique(order.like[: order.given]))
    ]
    cells = np.concatenate([table.ravel() for table in tables])
    strategy = order.least(counts, cells, most_cells, most_additions)
    return None if strategy is None else strategy.astype(np.int32)


def _times(edge: Edge) -> Int64Array:
    times: Int64Array = edge.time[edge.source_slots[:, None], edge.target_slots]
    return times


class Elimination(NamedTuple):
    """An order of elimination, for any terms with given scopes.

    Bucket elimination (Dechter, 1999): the least over a node's choices, of the sum of all terms
    with the node, is a term over its neighbours. The node with the smallest new term is next. The
    time is proportional to the cells of all tables that are added. Steps that add equal tables, as
    in the layers of a model, are one.

    Attributes:
        scope_first, scope: the scope of every term, given terms first, then those that steps make.
        nodes: int64[steps], the node that each step eliminates.
        input_first, inputs: the terms that each step adds.
        like: int64[terms], the first term with the same cells, for each term.
        given: the number of given terms.
    """

    scope_first: Int64Array
    scope: Int64Array
    nodes: Int64Array
    input_first: Int64Array
    inputs: Int64Array
    like: Int64Array
    given: int

    @classmethod
    def of(
        cls,
        counts: Sequence[int],
        scopes: Sequence[Scope],
        free: Sequence[bool],
        kinds: Sequence[Hashable] | None = None,
    ) -> Elimination:
        """Return a good order for nodes with some ``counts`` of choices.

        Args:
            counts: of every node.
            scopes: of the given terms.
            free: whether a node may have several choices; other nodes are in no scope.
            kinds: of the given terms; those of a kind have the same cells. By default no two have.
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
        numbers: dict[Hashable, int] = {}
        given = range(len(terms)) if kinds is None else kinds
        like = [numbers.setdefault(kind, term) for term, kind in enumerate(given)]
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
            axes = {member: (axis, counts[member]) for axis, member in enumerate((*rest, node))}
            made = [(like[term], *(axes[member] for member in terms[term])) for term in inputs[-1]]
            like.append(numbers.setdefault((*axes.values(), *sorted(made)), len(terms)))
            terms.append(rest)
        return cls(
            *_rows(terms),
            np.array(nodes, dtype=np.int64),
            *_rows(inputs),
            np.array(like, dtype=np.int64),
            len(scopes),
        )

    def least(
        self, counts: Int64Array, tables: Int64Array, most_cells: int, most_additions: int
    ) -> Int64Array | None:
        """Return the choice for every node with the least sum; None where a step would be too
        large.

        Args:
            counts: the number of choices of each node.
            tables: the cells of all given terms, one term after the other, those of a kind once.
            most_cells: the most cells of a table.
            most_additions: the most additions of a step, for each of its tables.
        """
        places = _places(self, counts, most_cells, most_additions)
        if places.size == 0:
            return None
        cells = np.empty(places.max(), dtype=np.int64)
        cells[: tables.size] = tables
        choices: Int64Array = _eliminate(self, counts, places, tables.size, cells)
        return choices


def _cells(counts: Sequence[int], nodes: Iterable[int]) -> int:
    return prod(counts[node] for node in nodes)


def _rows(rows: Sequence[Sequence[int]]) -> tuple[Int64Array, Int64Array]:
    """Return where each row begins, and all rows joined."""
    first = offsets_of([len(row) for row in rows])
    return first, np.array([number for row in rows for number in row], dtype=np.int64)


@numba.njit(cache=True, nogil=True)
def _places(
    order: Elimination, counts: Int64Array, most_cells: int, most_additions: int
) -> Int64Array:
    """Return int64[terms, 2], where the cells of every term begin and end; empty where a step is
    too large."""
    scope_first, scope, nodes, given = order.scope_first, order.scope, order.nodes, order.given
    places = np.zeros((scope_first.size - 1, 2), dtype=np.int64)
    end = np.int64(0)
    for term in range(len(places)):
        if order.like[term] != term:
            places[term] = places[order.like[term]]
            continue
        limit = np.int64(2**62)
        if term >= given:
            limit = np.int64(min(most_cells, most_additions // counts[nodes[term - given]]))
        cells = 1
        for place in range(scope_first[term], scope_first[term + 1]):
            cells *= counts[scope[place]]
            if cells > limit:
                return np.zeros((0, 2), dtype=np.int64)
        if cells > limit:
            return np.zeros((0, 2), dtype=np.int64)
        places[term] = end, end + cells
        end += cells
    return places


@numba.njit(cache=True, nogil=True)
def _eliminate(
    order: Elimination, counts: Int64Array, places: Int64Array, begin: int, cells: Int64Array
) -> Int64Array:
    """Do all steps; return the choices with the least sum.

    Args:
        order: the steps.
        counts: the number of choices of each node.
        places: of the cells of every term.
        begin: where the cells of the terms begin that steps make.
        cells: of the given terms; those of the others are written.
    """
    scope_first, scope, nodes, input_first, inputs, like, given = order
    best = np.zeros(cells.size - begin, dtype=np.int32)
    for step in range(nodes.size):
        node, term = nodes[step], given + step
        if like[term] != term:
            continue
        rest = scope[scope_first[term] : scope_first[term + 1]]
        used = inputs[input_first[step] : input_first[step + 1]]
        starts = np.empty(used.size, dtype=np.int64)
        strides = np.zeros((used.size, rest.size + 1), dtype=np.int64)
        for number in range(used.size):
            starts[number] = places[used[number], 0]
            stride = 1
            for place in range(
                scope_first[used[number] + 1] - 1, scope_first[used[number]] - 1, -1
            ):
                member, axis = scope[place], 0
                while axis < rest.size and rest[axis] != member:  # the node itself comes last
                    axis += 1
                strides[number, axis] = stride
                stride *= counts[member]
        first, end = places[term]
        out, at = cells[first:end], best[first - begin :]
        _least(counts, rest, counts[node], starts, strides, cells, out, at)
    choices = np.zeros(counts.size, dtype=np.int64)
    for step in range(nodes.size - 1, -1, -1):
        term = given + step
        cell = places[term, 0] - begin
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
