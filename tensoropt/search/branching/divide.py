"""Where a part of a problem is divided in two: by the configurations of one node."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array, Int32Array
from tensoropt.search.branching.part import Part

__all__ = ["divided"]

# Steps are as large as the largest from this share of it on.
_AS_LARGE = 0.99
# A hub is a node of at most so many states and at least so many neighbours.
_STATES, _NEIGHBOURS = 3, 4


def divided(
    part: Part, corner: tuple[float, float], limits: Float64Array, node: int
) -> tuple[BoolArray, BoolArray]:
    """Two halves of a part, by the configurations of one node.

    If there is a hub, of few states and many neighbours: for each neighbour bounds mix its states
    otherwise, which no other division ends, and without it the others make simpler graphs. Else
    the node that bounds allow least at a corner, by whether lines that are steeper than the hull
    there come nearest to it or others; else by the largest step between the supported points
    beside the corner, see `_largest_step`."""
    hub = _hub(part)
    if hub >= 0:
        states = np.arange(part.start[hub], part.start[hub + 1])
        return _halves(part, hub, states == states[0])
    half = _by_line(part, corner, limits, node) if node >= 0 else None
    if half is None or half.all() or not half.any():
        node, half = _largest_step(part, corner)
    return _halves(part, node, half)


def _hub(part: Part) -> int:
    """The node of few states with the most neighbours; -1 where it has not many."""
    sizes = np.diff(part.start)
    ends = np.stack([part.graph.ends.source.node, part.graph.ends.target.node])
    pairs = np.unique(np.sort(ends, axis=0), axis=1)
    degrees = np.bincount(pairs.ravel(), minlength=sizes.size)
    degrees[(sizes < 2) | (sizes > _STATES)] = 0
    hub = int(degrees.argmax())
    return hub if degrees[hub] >= _NEIGHBOURS else -1


def _halves(part: Part, node: int, half: BoolArray) -> tuple[BoolArray, BoolArray]:
    """The part's configurations with half of a node's, and those with the others."""
    first, last = part.start[node], part.start[node + 1]
    one = np.ones(part.configurations, dtype=np.bool_)
    other = one.copy()
    one[first:last], other[first:last] = half, ~half
    return one, other


def _by_line(
    part: Part, corner: tuple[float, float], limits: Float64Array, node: int
) -> BoolArray | None:
    hull = part.hull()
    if hull.memory.size < 2:
        return None
    first, last = part.start[node], part.start[node + 1]
    own = np.array([each.min_marginals[first:last] for each in part.bounds])
    with np.errstate(invalid="ignore"):
        near = np.where(np.isfinite(limits), own.T / limits, 0.0)
    weights = [each.weights for each in part.bounds]
    worth = np.array([pair[1] / pair[0] if pair[0] else np.inf for pair in weights])
    slope = hull.slope(int(hull.edges_below(np.array([corner[0]]))[0]))
    found: BoolArray = worth[near.argmax(axis=1)] > slope
    return found


def _largest_step(part: Part, corner: tuple[float, float]) -> tuple[int, BoolArray]:
    """The node whose choice differs most in cost between the supported points beside a corner,
    and those of its configurations that fit the one better than the other.

    Of nodes that differ as much, as those of like layers do, the middle one: what changes along a
    chain of them once is divided in halves then.
    """
    hull = part.hull()
    edge = int(hull.edges_below(np.array([corner[0]]))[0])
    pair = hull.states[[edge, min(edge + 1, hull.memory.size - 1)]]
    graph = part.graph
    worth = hull.slope(edge) if hull.memory.size > 1 else graph.byte_worth
    states = part.start[:-1] + pair
    steps = worth * np.abs(np.diff(graph.memory[states], axis=0)[0])
    steps += np.abs(np.diff(graph.time[states], axis=0)[0])
    is_other = pair[0] != pair[1]
    source, target = graph.ends.source, graph.ends.target
    row, column = (graph.ends.slots[side.slots + pair[:, side.node]] for side in (source, target))
    for kind, near, far, one, other in zip(
        graph.kind, source.node, target.node, *(row * target.sizes + column).tolist(), strict=True
    ):
        cells = graph.cells[kind]
        step = abs(cells.first_time(one) - cells.first_time(other)) / 2
        steps[near] += step * is_other[near]
        steps[far] += step * is_other[far]
    if not is_other.any():
        number = int(np.diff(part.start).argmax())
        size = int(np.diff(part.start)[number])
        return number, np.arange(size) < size // 2
    steps[~is_other] = -1.0
    largest = np.flatnonzero(steps >= _AS_LARGE * steps.max())
    number = int(largest[largest.size // 2])
    beside_one, beside_other = (_beside(part, worth, own, number) for own in pair)
    one, other = pair[:, number]
    fits = beside_one - beside_one[one] <= beside_other - beside_other[other]
    fits[one], fits[other] = True, False
    return number, fits


def _beside(part: Part, worth: float, states: Int32Array, node: int) -> Float64Array:
    """float64[configurations of a node], what each costs beside its neighbours' states."""
    graph, ends = part.graph, part.graph.ends
    first, last = part.start[node], part.start[node + 1]
    found: Float64Array = graph.time[first:last] + worth * graph.memory[first:last]
    for near, far in ((ends.source, ends.target), (ends.target, ends.source)):
        for edge in near.edges[near.first[node] : near.first[node + 1]].tolist():
            costs = graph.cells[graph.kind[edge]].least((1.0, worth))
            table = costs.reshape(ends.source.sizes[edge], ends.target.sizes[edge])
            own = ends.slots[near.slots[edge] : near.slots[edge] + last - first]
            other = ends.slots[far.slots[edge] + states[far.node[edge]]]
            found += table[own, other] if near is ends.source else table[other, own]
    return found
