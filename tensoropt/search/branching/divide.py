"""Where a part of a problem is divided in two: by the configurations of one node."""

from __future__ import annotations

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array
from tensoropt.search.branching.part import Part

__all__ = ["divided"]


def divided(
    part: Part, corner: tuple[float, float], limits: Float64Array, node: int
) -> tuple[BoolArray, BoolArray]:
    """Two halves of a part, by the configurations of one node: the one that bounds allow least
    at a corner, by whether lines that are steeper than the hull there come nearest to it or
    others; else by the largest step between the supported points beside the corner."""
    half = _by_line(part, corner, limits, node) if node >= 0 else None
    if half is None or half.all() or not half.any():
        node, half = _largest_step(part, corner)
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
    and half of its configurations."""
    hull = part.hull()
    edge = int(hull.edges_below(np.array([corner[0]]))[0])
    pair = hull.strategies[[edge, min(edge + 1, hull.memory.size - 1)]]
    worth = hull.slope(edge) if hull.memory.size > 1 else part.problem.byte_worth
    steps = np.zeros(len(part.nodes))
    for number in np.flatnonzero(pair[0] != pair[1]).tolist():
        node = part.problem.nodes[number]
        memory, time = np.abs(
            np.diff(np.array([node.memory, node.time])[:, pair[:, number]], axis=1)
        )
        steps[number] = worth * memory[0] + time[0]
    for each in part.problem.edges:
        rows, columns = (
            each.source_slots[pair[:, each.source]],
            each.target_slots[pair[:, each.target]],
        )
        step = abs(int(np.diff(each.time[rows, columns])[0])) / 2
        for number in (each.source, each.target):
            if pair[0, number] != pair[1, number]:
                steps[number] += step
    number = int(steps.argmax())
    node = part.problem.nodes[number]
    one, other = pair[:, number]
    if one == other:
        number = int(np.diff(part.start).argmax())
        size = part.problem.nodes[number].configurations
        return number, np.arange(size) < size // 2
    costs = node.memory if node.memory[one] != node.memory[other] else node.time
    if costs[one] == costs[other]:
        return number, np.arange(costs.size) == one
    return number, np.abs(costs - costs[one]) <= np.abs(costs - costs[other])
