"""Lower bounds on a graph that has been simplified, by message passing.

What has been eliminated is part of a node or an edge, within which nothing needs to be bounded. So
the same sweeps as in `tensoropt.search.bounds.message_passing` bound more closely here than they
did at first. An edge's cells are frontiers here: what one costs least is another point for every
weight, so that each weight has tables of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numba
import numpy as np

from tensoropt.arrays import Float64Array, Int64Array, offsets_of
from tensoropt.search.bounds.passes import Tables, sweep, sweep_additions, to_units, whole_units
from tensoropt.search.exact.edge_table import EdgeTable
from tensoropt.search.flat.incidence import Incidence
from tensoropt.search.pareto.region import Weights
from tensoropt.search.pareto.table import Table
from tensoropt.search.threads import in_threads

__all__ = ["least_of_rows", "pass_messages"]

# Weighted cost of a row without points: far more than any strategy's.
_NEVER = 1e30


def pass_messages(
    nodes: Mapping[int, Float64Array],
    edges: Mapping[tuple[int, int], EdgeTable],
    weights: Sequence[Weights],
    sweeps: int,
) -> tuple[list[Float64Array], list[Float64Array]]:
    """Messages along all edges, forward and back so many times.

    Args:
        nodes: float64[states, W], weighted costs, by ascending number.
        edges: between two of them, as seen from the first, with costs that are not negative; their
            messages do not count.
        weights: W pairs.
        sweeps: at least 1.

    Returns:
        Per node float64[states, W], below the cost of every strategy with this state; and the
        messages, float64[slots, W]: of all edges to their first nodes, then to their second.
    """
    place = {node: number for number, node in enumerate(nodes)}
    start = offsets_of([len(own) for own in nodes.values()])
    costs = np.ascontiguousarray(np.concatenate(list(nodes.values())).T)
    found, least = np.full_like(costs, -np.inf), np.minimum.reduceat(costs, start[:-1], axis=1)
    parts = list(edges.values())
    slots = [part.near_slots for part in parts] + [part.far_slots for part in parts]
    at = offsets_of([each.size for each in slots])[:-1].reshape(2, -1)
    counts = [(part.near_count, part.far_count) for part in parts]
    sizes = np.array(counts, dtype=np.int64).reshape(-1, 2).T
    pairs = [[place[pair[end]] for pair in edges] for end in (0, 1)]
    ends = Incidence.of(start, slots, pairs, list(at), sizes)
    passed = np.zeros((len(costs), sizes.sum()))
    points = _points([part.table for part in parts])
    cells = offsets_of([part.table.rows for part in parts])
    forward = np.arange(len(nodes))
    backward = forward[::-1].copy()

    def solve(line: int) -> None:
        tables = _in_units(_least_of_rows(*points, weights[line]), cells)
        moved = [each[line : line + 1] for each in (costs, least, found, passed)]
        for _ in range(sweeps):
            sweep(forward, ends, tables, True, *moved)
            sweep(backward, ends, tables, False, *moved)

    additions = sweep_additions(sweeps, points[1].size, len(costs))
    in_threads(solve, range(len(costs)), additions)
    np.maximum(found, least.sum(axis=1, keepdims=True), out=found)
    of_nodes = np.split(np.ascontiguousarray(found.T), start[1:-1])
    messages = np.split(np.ascontiguousarray(passed.T), offsets_of(sizes.ravel())[1:-1])
    return of_nodes, messages


def least_of_rows(tables: Sequence[Table], weights: Sequence[Weights]) -> list[Float64Array]:
    """float64[rows, W] of each table: every row's least weighted cost."""
    points = _points(tables)
    costs = np.array([_least_of_rows(*points, pair) for pair in weights])
    places = offsets_of([table.rows for table in tables])[1:-1]
    return [np.ascontiguousarray(part.T) for part in np.split(costs, places, axis=1)]


def _points(tables: Sequence[Table]) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Where the rows of all tables start, one after the other, and the points' costs."""
    none = np.zeros(0, dtype=np.int64)
    return (
        offsets_of(np.concatenate([none, *(table.sizes for table in tables)])),
        np.concatenate([none, *(table.memory for table in tables)]),
        np.concatenate([none, *(table.time for table in tables)]),
    )


@numba.njit(cache=True, nogil=True)
def _least_of_rows(
    offsets: Int64Array, memory: Int64Array, time: Int64Array, weights: Weights
) -> Float64Array:
    """Every row's least weighted cost."""
    found = np.full(offsets.size - 1, _NEVER)
    for row in range(found.size):
        for point in range(offsets[row], offsets[row + 1]):
            found[row] = min(found[row], weights[0] * time[point] + weights[1] * memory[point])
    return found


@numba.njit(cache=True, nogil=True)
def _in_units(costs: Float64Array, cells: Int64Array) -> Tables:
    """The costs of every edge's cells; those of cells without points are the edge's dearest."""
    units, scales = np.empty(costs.size, np.int32), np.empty(cells.size - 1)
    for edge in range(scales.size):
        own, largest = costs[cells[edge] : cells[edge + 1]], 0.0
        for cost in own:
            largest = max(largest, cost if cost < _NEVER else 0.0)
        scales[edge] = whole_units(largest)
        to_units(np.minimum(own, largest), scales[edge], units[cells[edge] : cells[edge + 1]])
    nowhere = np.zeros(scales.size, np.bool_)
    return Tables(units, units[:0], nowhere, cells[None, :-1], scales[None])
