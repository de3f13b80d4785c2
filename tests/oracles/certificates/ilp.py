"""The least time under a memory limit by integer linear programming, independent of the search.

Variables: x[v, k] is 1 if node v has configuration k; y[e, s, t] is 1 if edge e has slot s at its
source and t at its target. Objective: the time of all chosen nodes and cells. Constraints:

- every node has one configuration: the sum of x[v, k] over k is 1;
- cells fit configurations: the sum of y[e, s, t] over t equals the sum of x[v, k] over the k with
  slot s at the source; likewise at the target;
- the memory of all chosen nodes and cells is at most the limit.

With x in {0, 1}, every y is in {0, 1}, so only x are integer variables. With continuous x, the
constraints describe the local polytope of the problem. HiGHS solves the program
(`scipy.optimize.milp`). When its time is up, it returns a time that no strategy undercuts: the dual
bound.
"""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from tensoropt.arrays import BoolArray, Float64Array, Int64Array
from tensoropt.problem.model import Problem
from tests.oracles.certificates.reduction import Reduced

__all__ = ["TOLERANCE", "Solution", "least_time", "whole_bound"]


# HiGHS gets numbers of about this size, which are large beside its tolerances of 1e-6.
_SIZE = 2**12
_OPTIMAL, _STOPPED, _INFEASIBLE = 0, 1, 2
# Relative precision of HiGHS's objective.
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of HiGHS for one memory limit.

    Attributes:
        strategy: the best strategy, as configuration numbers of the problem; None if none was
            found.
        nanoseconds: integer time of the strategy by equation 3; None without a strategy.
        bound: nanoseconds that no strategy within the limit undercuts; inf if none fits the limit.
        optimal: whether the strategy was proven to be the fastest (to `TOLERANCE`).
        seconds: time spent.
        variables: number of the program's variables.
    """

    strategy: tuple[int, ...] | None
    nanoseconds: int | None
    bound: float
    optimal: bool
    seconds: float
    variables: int


def least_time(
    problem: Problem,
    left: Reduced,
    limit: int,
    seconds: float,
    cells: Sequence[BoolArray] | None = None,
) -> Solution:
    """The fastest strategy of ``problem`` that needs at most ``limit`` bytes.

    Args:
        problem: prices the strategy.
        left: the configurations to choose from.
        limit: memory limit in bytes.
        seconds: time limit of HiGHS.
        cells: for each edge bool[source slots, target slots], the allowed pairs; None for all.
    """
    begun = clock.perf_counter()
    program = _Program(left, cells)
    nanoseconds_each = _unit(sum(int(own.max()) for own in left.time))
    bytes_each = _unit(limit)
    found = milp(
        program.time / nanoseconds_each,
        integrality=program.integer,
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(program.equalities, program.right, program.right),
            LinearConstraint(program.memory[None, :] / bytes_each, -inf, limit / bytes_each),
        ],
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    spent = clock.perf_counter() - begun
    if found.status not in (_OPTIMAL, _STOPPED, _INFEASIBLE):
        raise RuntimeError(f"HiGHS solves the program or runs out of time. Got: {found.message}")
    bound = -inf if found.mip_dual_bound is None else found.mip_dual_bound * nanoseconds_each
    if found.status == _INFEASIBLE:
        bound = inf
    strategy = None if found.x is None else tuple(left.strategy(program.choices(found.x)))
    memory, nanoseconds = (None, None) if strategy is None else problem.cost(strategy)
    if memory is not None and memory > limit:  # HiGHS's tolerance exceeds the limit
        strategy = nanoseconds = None
    optimal = found.status == _OPTIMAL and strategy is not None
    return Solution(strategy, nanoseconds, bound, optimal, spent, program.time.size)


def _unit(largest: int) -> float:
    """The unit of HiGHS's numbers: a power of two, so that float64 holds the costs exactly."""
    return 2.0 ** max(0, (largest // _SIZE).bit_length() - 1)


class _Program:
    """The matrices of the program.

    Attributes:
        time, memory: for each variable; x of all nodes, then y of all edges.
        integer: 1 for x, 0 for y.
        equalities, right: a row for each node, and for each slot at both ends of each edge.
    """

    def __init__(self, left: Reduced, cells: Sequence[BoolArray] | None) -> None:
        if cells is None:
            cells = [np.ones(edge.time.shape, dtype=np.bool_) for edge in left.edges]
        self._starts = np.cumsum([0, *(own.size for own in left.kept)])
        start = int(self._starts[-1])
        pairs = list(zip(left.edges, cells, strict=True))
        self.time = _joined([*left.time, *(edge.time[own] for edge, own in pairs)])
        self.memory = _joined([*left.memory, *(edge.memory[own] for edge, own in pairs)])
        self.integer = (np.arange(self.time.size) < start).astype(np.int64)
        nodes = np.repeat(np.arange(len(left.kept)), np.diff(self._starts))
        rows, columns, values = [nodes], [np.arange(start)], [np.ones(nodes.size)]
        count = len(left.kept)
        for edge, own in pairs:
            sources, targets = np.nonzero(own)
            places = start + np.arange(sources.size)
            start += sources.size
            for node, slots, slot_of_cell, all_slots in (
                (edge.source, edge.source_slots, sources, own.shape[0]),
                (edge.target, edge.target_slots, targets, own.shape[1]),
            ):
                rows += [count + slot_of_cell, count + slots]
                columns += [places, self._starts[node] + np.arange(slots.size)]
                values += [np.ones(slot_of_cell.size), -np.ones(slots.size)]
                count += all_slots
        shape = count, self.time.size
        self.equalities = csr_matrix(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=shape
        )
        self.right = (np.arange(count) < len(left.kept)).astype(np.float64)

    def choices(self, values: Float64Array) -> list[int]:
        """The choice of the values of x at each node."""
        return [
            int(np.argmax(values[first:last]))
            for first, last in zip(self._starts[:-1], self._starts[1:], strict=True)
        ]


def _joined(parts: Sequence[Int64Array]) -> Int64Array:
    return np.concatenate([part.ravel() for part in parts])


def whole_bound(bound: float) -> float:
    """A dual bound as integer nanoseconds.

    Times are integers, so the bound is rounded up, after HiGHS's tolerance is subtracted.
    """
    return -inf if bound == -inf else ceil(bound * (1 - TOLERANCE))
