"""Tofu's own search: the devices are halved repeatedly, each time with the least communication."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensoropt.arrays import Int8Array, Int64Array
from tensoropt.parallel.assignments import NO_INDEX
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.least_time import least_time, single_strategy
from tensoropt.search.baselines.nearest import leader_assignments
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["solve", "steps"]


def solve(problem: GraphProblem, limits: SearchLimits = DEFAULT_LIMITS) -> Frontier:
    """One strategy by recursive partitioning (Tofu, section 5.2).

    The recursion follows the mesh axes, the slowest link first. Along an axis every operator splits
    one index of its iteration space (an index of an output, or a reduced index). The indices of all
    operators are chosen together, so that communication between the two groups of devices (three
    for an axis of three) takes the least time in a step. That choice is fixed, and each group is
    partitioned in turn. No operator is computed twice if it can be split. At every axis an operator
    has as many choices as indices; a search over all axes at once has that number to the power of
    the number of axes.
    """
    strategy, exact = [0] * len(problem.choices), True
    for found in steps(problem, limits):
        exact = exact and found.exact
        strategy = found.strategies[0].tolist()
    return single_strategy(problem.problem, strategy, exact=exact)


def steps(problem: GraphProblem, limits: SearchLimits = DEFAULT_LIMITS) -> Iterator[Frontier]:
    """The strategy after each step of the recursion; nothing is split along later axes."""
    tables = [leader_assignments(problem, node) for node in range(len(problem.choices))]
    strategy = [0] * len(tables)
    for axis in range(len(problem.mesh.axes)):
        kept = [_next(*own, axis) for own in zip(tables, strategy, strict=True)]
        found = least_time(problem.problem, kept, limits)
        strategy = found.strategies[0].tolist()
        yield found


def _next(assigned: Int8Array, chosen: int, axis: int) -> Int64Array:
    """The options that split like ``chosen`` before ``axis``, some index along it, and none
    after it."""
    if len(assigned) == 1:
        return np.zeros(1, dtype=np.int64)
    fixed = (assigned[:, :axis] == assigned[chosen, :axis]).all(axis=1)
    fixed &= (assigned[:, axis + 1 :] == NO_INDEX).all(axis=1)
    splits = np.flatnonzero(fixed & (assigned[:, axis] != NO_INDEX))
    return splits if splits.size else np.flatnonzero(fixed)
