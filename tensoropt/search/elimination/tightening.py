"""Bounds of a graph that has been simplified: costs are moved along its edges once more.

What has been eliminated is part of a node or an edge, within which nothing needs to be bounded. So
the same passes as in `tensoropt.search.bounds` bound more closely here than they did at first. All
weights go together: costs have an axis for them, the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from tensoropt.search.table import Cells, Table

__all__ = ["Moved", "least_of_rows", "moved_along_edges"]

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

# Of what has no point; far more than any strategy's weighted cost, and finite, as it is subtracted.
_NEVER = 1e30


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """What costs that have been moved say.

    Attributes:
        nodes: per node float64[states, W], how much more than the sum of all nodes' least costs
            every strategy with this state takes at least.
        edges: what each edge gives to its ends: float64[slots, W] at its first and its second.
    """

    nodes: dict[int, Float64Array]
    edges: dict[tuple[int, int], tuple[Float64Array, Float64Array]]


def moved_along_edges(
    nodes: Mapping[int, tuple[Table, Float64Array]],
    edges: Mapping[tuple[int, int], Cells],
    weights: tuple[Float64Array, Float64Array],
    sweeps: int,
) -> Moved:
    """Move costs forward and back so many times.

    Args:
        nodes: their states and float64[states, W], what is to be added to a point's weighted cost
            so that the least of all is 0.
        edges: between two of them, as seen from the first.
        weights: float64[W] each, of a nanosecond and of a byte.
        sweeps: how often.
    """
    order = {node: place for place, node in enumerate(sorted(nodes))}
    start = _starts([nodes[node][0].rows for node in order])
    costs = np.concatenate([least_of_rows(*nodes[node], weights) for node in order])
    found = costs.copy()
    held: list[list[Float64Array]] = [[], []]
    if edges:
        found, held = _swept(order, start, costs, edges, weights, sweeps)
    own = np.split(found, start[1:-1])
    return Moved(
        dict(zip(order, own, strict=True)), dict(zip(edges, zip(*held, strict=True), strict=True))
    )


def _swept(
    order: Mapping[int, int],
    start: Int64Array,
    costs: Float64Array,
    edges: Mapping[tuple[int, int], Cells],
    weights: tuple[Float64Array, Float64Array],
    sweeps: int,
) -> tuple[Float64Array, list[list[Float64Array]]]:
    parts = list(edges.values())
    cells = [least_of_rows(part.table, part.rest, weights) for part in parts]
    ends = np.array([(order[near], order[far]) for near, far in edges], dtype=np.int64)
    counts = np.array([(part.near_count, part.far_count) for part in parts], dtype=np.int64)
    slots = [[part.near_slots for part in parts], [part.far_slots for part in parts]]
    at_slot = [_starts(counts[:, end]) for end in (0, 1)]
    held = [np.zeros((int(at_slot[end][-1]), costs.shape[1])) for end in (0, 1)]
    numbers = [np.concatenate(own) for own in slots]
    places = [_starts([each.size for each in own]) for own in slots]
    flat, at_cell = np.concatenate(cells), _starts([len(own) for own in cells])
    by_end = [_by_end(ends[:, end], start.size - 1) for end in (0, 1)]
    least = np.minimum.reduceat(costs, start[:-1])
    found = np.full(costs.shape, -np.inf)
    forward = np.arange(start.size - 1)
    for _ in range(sweeps):
        for near, far in ((0, 1), (1, 0)):
            _pass(
                forward if near == 0 else forward[::-1], start, costs, least, found,
                *by_end[near], by_end[far][0], np.ascontiguousarray(ends[:, far]), numbers[near],
                places[near], numbers[far], places[far], flat, at_cell, counts, near,
                at_slot[near], at_slot[far], held[near], held[far],
            )  # fmt: skip
    np.maximum(found, least.sum(axis=0), out=found)
    return found, [np.split(held[end], at_slot[end][1:-1]) for end in (0, 1)]


def least_of_rows(
    table: Table, rest: Float64Array, weights: tuple[Float64Array, Float64Array]
) -> Float64Array:
    """float64[rows, W]: every row's least weighted cost with what is added to it."""
    return _least_of_rows(table.offsets, table.memory, table.time, rest, *weights)


def _starts(counts: Sequence[int] | Int64Array) -> Int64Array:
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _by_end(ends: Int64Array, nodes: int) -> tuple[Int64Array, Int64Array]:
    """Per node where its edges are in a list, and that list."""
    return _starts(np.bincount(ends, minlength=nodes)), np.argsort(ends, kind="stable")


@numba.njit(cache=True, nogil=True)
def _least_of_rows(
    offsets: Int64Array,
    memory: Int64Array,
    time: Int64Array,
    rest: Float64Array,
    per_nanosecond: Float64Array,
    per_byte: Float64Array,
) -> Float64Array:
    weights = per_byte.size
    found = np.full((offsets.size - 1, weights), _NEVER)
    for row in range(offsets.size - 1):
        for point in range(offsets[row], offsets[row + 1]):
            for line in range(weights):
                cost = per_nanosecond[line] * time[point] + per_byte[line] * memory[point]
                found[row, line] = min(found[row, line], cost + rest[row, line])
    return found


@numba.njit(cache=True, nogil=True)
def _settle(
    costs: Float64Array, least: Float64Array, total: Float64Array, node: int, first: int, last: int
) -> None:
    """Take stock of a node's least costs."""
    for line in range(costs.shape[1]):
        now = np.inf
        for place in range(first, last):
            now = min(now, costs[place, line])
        total[line] += now - least[node, line]
        least[node, line] = now


@numba.njit(cache=True, nogil=True)
def _pass(
    order: Int64Array,
    start: Int64Array,
    costs: Float64Array,
    least: Float64Array,
    found: Float64Array,
    ahead_start: Int64Array,
    ahead: Int64Array,
    behind_start: Int64Array,
    far_node: Int64Array,
    near_slots: Int64Array,
    near_places: Int64Array,
    far_slots: Int64Array,
    far_places: Int64Array,
    flat: Float64Array,
    at_cell: Int64Array,
    counts: Int64Array,
    near_end: int,
    at_near: Int64Array,
    at_far: Int64Array,
    near_held: Float64Array,
    far_held: Float64Array,
) -> None:
    """Every node gives equal parts to the edges ahead of it, and these what they can to their far
    ends. Rows of cells are the near end's slots if ``near_end`` is 0, and else columns are."""
    weights = costs.shape[1]
    total = least.sum(axis=0)
    for node in order:
        first, last = start[node], start[node + 1]
        _settle(costs, least, total, node, first, last)
        for place in range(first, last):
            for line in range(weights):
                bound = total[line] - least[node, line] + costs[place, line]
                found[place, line] = max(found[place, line], bound)
        edges = ahead_start[node + 1] - ahead_start[node]
        if edges == 0:
            continue
        part = 1.0 / max(edges, behind_start[node + 1] - behind_start[node])
        own = costs[first:last].copy()
        for position in range(ahead_start[node], ahead_start[node + 1]):
            edge = ahead[position]
            near, far = near_slots[near_places[edge] :], far_slots[far_places[edge] :]
            here, there = counts[edge, near_end], counts[edge, 1 - near_end]
            given = near_held[at_near[edge] : at_near[edge] + here]
            share = np.full((here, weights), _NEVER)
            for place in range(last - first):
                for line in range(weights):
                    share[near[place], line] = min(share[near[place], line], own[place, line])
            for slot in range(here):
                for line in range(weights):
                    share[slot, line] *= part
                    given[slot, line] -= share[slot, line]
            for place in range(last - first):
                for line in range(weights):
                    costs[first + place, line] -= share[near[place], line]
            taken = np.full((there, weights), np.inf)
            step, skip = (there, 1) if near_end == 0 else (1, here)
            for slot in range(here):
                for other in range(there):
                    cell = at_cell[edge] + slot * step + other * skip
                    for line in range(weights):
                        left = flat[cell, line] - given[slot, line]
                        taken[other, line] = min(taken[other, line], left)
            before = far_held[at_far[edge] : at_far[edge] + there]
            begin, end = start[far_node[edge]], start[far_node[edge] + 1]
            for place in range(end - begin):
                slot = far[place]
                for line in range(weights):
                    costs[begin + place, line] += taken[slot, line] - before[slot, line]
            before[:] = taken
            _settle(costs, least, total, far_node[edge], begin, end)
        _settle(costs, least, total, node, first, last)
