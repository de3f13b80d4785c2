"""Message passing on a graph that has been simplified.

What has been eliminated is part of a node or an edge, within which nothing needs to be bounded. So
the same sweeps as in `tensoropt.search.bounds.message_passing` bound more closely here than they
did at first. An edge's cells are frontiers here: what one costs least is another point for every
weight, so that each weight has tables of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np

from tensoropt.arrays import Float64Array, Int32Array, Int64Array, offsets_of
from tensoropt.search.bounds.incidence import side_of
from tensoropt.search.bounds.passes import Tables, sweep, to_units, whole_units
from tensoropt.search.exact.edge_table import EdgeTable
from tensoropt.search.pareto.table import Table
from tensoropt.search.threads import in_threads

__all__ = ["Messages", "least_of_rows", "pass_messages"]

Points = tuple[Int64Array, Int64Array, Int64Array]

# Weighted cost of a row without points: far more than any strategy's.
_NEVER = 1e30


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """What edges have passed to nodes, and what follows.

    Attributes:
        bounds: per node float64[states, W], below the cost of every strategy with this state.
        edges: of each edge, float64[slots, W] to its first node and to its second.
    """

    bounds: dict[int, Float64Array]
    edges: dict[tuple[int, int], tuple[Float64Array, Float64Array]]


def pass_messages(
    nodes: Mapping[int, Float64Array],
    edges: Mapping[tuple[int, int], EdgeTable],
    weights: tuple[Float64Array, Float64Array],
    sweeps: int,
) -> Messages:
    """Messages along all edges, forward and back so many times.

    Args:
        nodes: float64[states, W], weighted costs, by ascending number.
        edges: between two of them, as seen from the first, with costs that are not negative; their
            messages do not count.
        weights: float64[W] each, of a nanosecond and of a byte.
        sweeps: at least 1.
    """
    place = {node: number for number, node in enumerate(nodes)}
    start = offsets_of([len(own) for own in nodes.values()])
    costs = np.ascontiguousarray(np.concatenate(list(nodes.values())).T)
    found, least = np.full_like(costs, -np.inf), np.minimum.reduceat(costs, start[:-1], axis=1)
    parts = list(edges.values())
    ends = [[place[pair[end]] for pair in edges] for end in (0, 1)]
    slots = [part.near_slots for part in parts] + [part.far_slots for part in parts]
    at = offsets_of([each.size for each in slots])
    counts = np.array([part.near_count for part in parts] + [part.far_count for part in parts])
    messages = offsets_of(counts.astype(np.int64))
    near, far = (
        side_of(ends[end], len(nodes), at[own].tolist(), messages[own], np.diff(messages)[own])
        for end, own in enumerate((slice(len(parts)), slice(len(parts), 2 * len(parts))))
    )
    numbers = np.concatenate([np.zeros(0, dtype=np.int64), *slots])
    passed = np.zeros((len(costs), messages[-1]))
    points = _points([part.table for part in parts])
    cells = offsets_of([part.table.rows for part in parts])
    forward = np.arange(len(nodes))
    backward = forward[::-1].copy()

    def solve(line: int) -> None:
        tables = _in_units(points, cells, float(weights[0][line]), float(weights[1][line]))
        moved = [each[line : line + 1] for each in (costs, least, found, passed)]
        for _ in range(sweeps):
            sweep(forward, start, numbers, near, far, tables, True, False, *moved)
            sweep(backward, start, numbers, far, near, tables, False, False, *moved)

    in_threads(solve, range(len(costs)))
    np.maximum(found, least.sum(axis=1, keepdims=True), out=found)
    of_nodes = np.split(np.ascontiguousarray(found.T), start[1:-1])
    of_ends = np.split(np.ascontiguousarray(passed.T), messages[1:-1])
    pairs = zip(of_ends[: len(parts)], of_ends[len(parts) : 2 * len(parts)], strict=True)
    return Messages(dict(zip(nodes, of_nodes, strict=True)), dict(zip(edges, pairs, strict=True)))


def least_of_rows(
    tables: Sequence[Table], weights: tuple[Float64Array, Float64Array]
) -> list[Float64Array]:
    """float64[rows, W] of each table: every row's least weighted cost."""
    points = _points(tables)
    costs = np.array([_least_of_rows(*points, *weight) for weight in zip(*weights, strict=True)])
    places = offsets_of([table.rows for table in tables])[1:-1]
    return [np.ascontiguousarray(part.T) for part in np.split(costs, places, axis=1)]


def _points(tables: Sequence[Table]) -> Points:
    """Where the rows of all tables start, one after the other, and the points' costs."""
    none = np.zeros(0, dtype=np.int64)
    return (
        offsets_of(np.concatenate([none, *(table.sizes for table in tables)])),
        np.concatenate([none, *(table.memory for table in tables)]),
        np.concatenate([none, *(table.time for table in tables)]),
    )


def _in_units(points: Points, cells: Int64Array, per_nanosecond: float, per_byte: float) -> Tables:
    """The least weighted cost of every cell; those without points cost what the dearest does."""
    costs = _least_of_rows(*points, per_nanosecond, per_byte)
    units: Int32Array = np.empty(costs.size, dtype=np.int32)
    scales = np.ones(cells.size - 1)
    for edge, (first, last) in enumerate(pairwise(cells)):
        own = costs[first:last]
        largest = float(own.max(initial=0.0, where=own < _NEVER))
        scales[edge] = whole_units(largest)
        to_units(np.minimum(own, largest), scales[edge], units[first:last])
    return Tables(units, cells[:-1], scales)


@numba.njit(cache=True, nogil=True)
def _least_of_rows(
    offsets: Int64Array,
    memory: Int64Array,
    time: Int64Array,
    per_nanosecond: float,
    per_byte: float,
) -> Float64Array:
    """Every row's least weighted cost."""
    found = np.full(offsets.size - 1, _NEVER)
    for row in range(found.size):
        for point in range(offsets[row], offsets[row + 1]):
            found[row] = min(found[row], per_nanosecond * time[point] + per_byte * memory[point])
    return found
