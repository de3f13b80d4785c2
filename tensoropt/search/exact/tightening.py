"""Bounds of a graph that has been simplified: costs are moved along its edges once more.

What has been eliminated is part of a node or an edge, within which nothing needs to be bounded. So
the same passes as in `bounds.message_passing` bound more closely here than they did at first. All
weights go together: costs have an axis for them, the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numba
import numpy as np

from tensoropt.arrays import Float64Array, Int64Array, offsets_of
from tensoropt.search.pareto.table import Cells, Table
from tensoropt.search.threads import in_threads

__all__ = ["Moved", "least_of_rows", "moved_along_edges"]


# Of what has no point; far more than any strategy's weighted cost, and finite, as it is subtracted.
_NEVER = 1e30
# Nothing here is no number, so that the least of many can be found several at a time.
_NUMBERS = {"nnan", "nsz"}


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
    nodes: Mapping[int, Float64Array],
    edges: Mapping[tuple[int, int], Cells],
    weights: tuple[Float64Array, Float64Array],
    sweeps: int,
) -> Moved:
    """Move costs forward and back so many times.

    Args:
        nodes: float64[states, W], weighted costs of which the least are 0.
        edges: between two of them, as seen from the first; what they have given does not count.
        weights: float64[W] each, of a nanosecond and of a byte.
        sweeps: how often.
    """
    order = {node: place for place, node in enumerate(sorted(nodes))}
    start = offsets_of([len(nodes[node]) for node in order])
    costs = np.concatenate([nodes[node] for node in order])
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
    ends = np.array([(order[near], order[far]) for near, far in edges], dtype=np.int64)
    counts = np.array([(part.near_count, part.far_count) for part in parts], dtype=np.int64)
    slots = [[part.near_slots for part in parts], [part.far_slots for part in parts]]
    at_slot = [offsets_of(counts[:, end]) for end in (0, 1)]
    at_cell = offsets_of(counts.prod(axis=1))
    points = _points([part.table for part in parts])
    numbers = [np.concatenate(own) for own in slots]
    places = [offsets_of([each.size for each in own]) for own in slots]
    by_end = [_by_end(ends[:, end], start.size - 1) for end in (0, 1)]
    own = np.ascontiguousarray(costs.T)
    found = np.full(own.shape, -np.inf)
    held = [np.zeros((costs.shape[1], int(at_slot[end][-1]))) for end in (0, 1)]

    def sweep(line: int) -> None:
        cells = _least_of_rows(*points, weights[0][line], weights[1][line])
        _sweep(
            sweeps, start, own[line], found[line], ends, cells, at_cell,
            *by_end[0], *by_end[1], numbers[0], places[0], numbers[1], places[1],
            held[0][line], at_slot[0], held[1][line], at_slot[1],
        )  # fmt: skip

    in_threads(sweep, range(costs.shape[1]))
    return np.ascontiguousarray(found.T), [
        np.split(np.ascontiguousarray(held[end].T), at_slot[end][1:-1]) for end in (0, 1)
    ]


def least_of_rows(
    tables: Sequence[Table], weights: tuple[Float64Array, Float64Array]
) -> list[Float64Array]:
    """float64[W, rows] of each table: every row's least weighted cost."""
    points = _points(tables)
    costs = np.array([_least_of_rows(*points, *weight) for weight in zip(*weights, strict=True)])
    return np.split(costs, offsets_of([table.rows for table in tables])[1:-1], axis=1)


def _points(tables: Sequence[Table]) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Where the rows of all tables start, one after the other, and the points' costs."""
    return (
        offsets_of(np.concatenate([table.sizes for table in tables])),
        np.concatenate([table.memory for table in tables]),
        np.concatenate([table.time for table in tables]),
    )


def _by_end(ends: Int64Array, nodes: int) -> tuple[Int64Array, Int64Array]:
    """Per node where its edges are in a list, and that list."""
    return offsets_of(np.bincount(ends, minlength=nodes)), np.argsort(ends, kind="stable")


@numba.njit(cache=True, nogil=True)
def _least_of_rows(
    offsets: Int64Array,
    memory: Int64Array,
    time: Int64Array,
    a_nanosecond: float,
    a_byte: float,
) -> Float64Array:
    """Every row's least weighted cost."""
    found = np.full(offsets.size - 1, _NEVER)
    for row in range(found.size):
        for point in range(offsets[row], offsets[row + 1]):
            found[row] = min(found[row], a_nanosecond * time[point] + a_byte * memory[point])
    return found


@numba.njit(cache=True, nogil=True, fastmath=_NUMBERS)
def _least(costs: Float64Array) -> float:
    least = np.inf
    for cost in costs:
        least = min(least, cost)
    return least


@numba.njit(cache=True, nogil=True, fastmath=_NUMBERS)
def _taken(cells: Float64Array, given: Float64Array, taken: Float64Array, by_rows: bool) -> None:
    """The least that cells with each far slot have left; near slots are rows, or columns."""
    taken[:] = np.inf
    if by_rows:
        for slot in range(given.size):
            row, less = cells[slot * taken.size : (slot + 1) * taken.size], given[slot]
            for other in range(taken.size):
                taken[other] = min(taken[other], row[other] - less)
    else:
        for other in range(taken.size):
            row = cells[other * given.size : (other + 1) * given.size]
            least = np.inf
            for slot in range(given.size):
                least = min(least, row[slot] - given[slot])
            taken[other] = least


@numba.njit(cache=True, nogil=True)
def _sweep(
    sweeps: int,
    start: Int64Array,
    costs: Float64Array,
    found: Float64Array,
    ends: Int64Array,
    cells: Float64Array,
    at_cell: Int64Array,
    first_starts: Int64Array,
    first_edges: Int64Array,
    second_starts: Int64Array,
    second_edges: Int64Array,
    first_slots: Int64Array,
    first_places: Int64Array,
    second_slots: Int64Array,
    second_places: Int64Array,
    first_held: Float64Array,
    first_at: Int64Array,
    second_held: Float64Array,
    second_at: Int64Array,
) -> None:
    """For one weight, so many times forward and back: every node gives equal parts to the edges
    ahead of it, and these what they can to their far ends. What is of an edge's first end and of
    its second comes in pairs."""
    nodes = start.size - 1
    least = np.empty(nodes)
    for node in range(nodes):
        least[node] = _least(costs[start[node] : start[node + 1]])
    for step in range(2 * sweeps):
        forward = step % 2 == 0
        far = 1 if forward else 0
        ahead_starts, behind_starts = first_starts, second_starts
        ahead, near_slots, far_slots = first_edges, first_slots, second_slots
        near_places, far_places, near_held, far_held = (
            first_places, second_places, first_held, second_held,
        )  # fmt: skip
        at_near, at_far = first_at, second_at
        if not forward:
            ahead_starts, behind_starts = second_starts, first_starts
            ahead, near_slots, far_slots = second_edges, second_slots, first_slots
            near_places, far_places, near_held, far_held = (
                second_places, first_places, second_held, first_held,
            )  # fmt: skip
            at_near, at_far = second_at, first_at
        total = least.sum()
        for place in range(nodes):
            node = place if forward else nodes - 1 - place
            own = costs[start[node] : start[node + 1]]
            total -= least[node]
            least[node] = _least(own)
            total += least[node]
            bounds = found[start[node] : start[node + 1]]
            for state in range(own.size):
                bounds[state] = max(bounds[state], total - least[node] + own[state])
            edges = ahead_starts[node + 1] - ahead_starts[node]
            if edges == 0:
                continue
            part = 1.0 / max(edges, behind_starts[node + 1] - behind_starts[node])
            before = own.copy()
            for position in range(ahead_starts[node], ahead_starts[node + 1]):
                edge = ahead[position]
                here = near_slots[near_places[edge] : near_places[edge + 1]]
                there = far_slots[far_places[edge] : far_places[edge + 1]]
                given = near_held[at_near[edge] : at_near[edge + 1]]
                share = np.full(given.size, _NEVER)
                for state in range(own.size):
                    share[here[state]] = min(share[here[state]], before[state])
                for slot in range(given.size):
                    share[slot] *= part
                    given[slot] -= share[slot]
                for state in range(own.size):
                    own[state] -= share[here[state]]
                held = far_held[at_far[edge] : at_far[edge + 1]]
                taken = np.empty(held.size)
                _taken(cells[at_cell[edge] : at_cell[edge + 1]], given, taken, forward)
                other = ends[edge, far]
                theirs = costs[start[other] : start[other + 1]]
                for state in range(theirs.size):
                    theirs[state] += taken[there[state]] - held[there[state]]
                for slot in range(held.size):
                    held[slot] = taken[slot]
                total -= least[other]
                least[other] = _least(theirs)
                total += least[other]
            total -= least[node]
            least[node] = _least(own)
            total += least[node]
    whole = least.sum()
    for state in range(found.size):
        found[state] = max(found[state], whole)
