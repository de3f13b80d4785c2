"""The least time under a memory limit, by integer linear programming: apart from the search.

Variables: x[v, k] is 1 where node v has configuration k; y[e, s, t] is 1 where edge e has slot s at
its source and t at its target. Objective: the time of all chosen nodes and cells. Constraints:

- every node has one configuration: the sum of x[v, k] over k is 1;
- cells fit configurations: the sum of y[e, s, t] over t is the sum of x[v, k] over those k that
  have slot s at the source; likewise at the target;
- the memory of all chosen nodes and cells is at most the limit.

With x in {0, 1} every y is, too, so only x are integer variables. Left continuous, they are the
local polytope of the problem. HiGHS solves it (`scipy.optimize.milp`); when its time is up, it
says below which time no strategy can be: the dual bound.
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


# HiGHS is given numbers of about this size, to which its tolerances of 1e-6 are small.
_SIZE = 2**12
_OPTIMAL, _STOPPED, _INFEASIBLE = 0, 1, 2
# What HiGHS is exact to, in relation to the objective.
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Solution:
    """What HiGHS says of one memory limit.

    Attributes:
        strategy: the best found, as configuration numbers of the problem; None if none was.
        nanoseconds: its time by equation 3, in whole numbers; None without a strategy.
        bound: nanoseconds that every strategy within the limit takes at least; inf if there is
            none within it.
        optimal: whether the strategy was proven to be the fastest (to `TOLERANCE`).
        seconds: spent.
        variables: of the program.
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
        problem: for what the strategy found costs.
        left: of the problem, what configurations there are to choose from.
        limit: of memory, in bytes.
        seconds: that HiGHS may take.
        cells: bool[source slots, target slots] of every edge, the pairs there are; None for all.
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
    if memory is not None and memory > limit:  # feasible to HiGHS's tolerance alone
        strategy = nanoseconds = None
    optimal = found.status == _OPTIMAL and strategy is not None
    return Solution(strategy, nanoseconds, bound, optimal, spent, program.time.size)


def _unit(largest: int) -> float:
    """In what HiGHS counts: a power of two, so that float64 keeps the costs exact."""
    return 2.0 ** max(0, (largest // _SIZE).bit_length() - 1)


class _Program:
    """The matrices.

    Attributes:
        time, memory: of every variable, x of all nodes before y of all edges.
        integer: 1 for x, 0 for y.
        equalities, right: a row for every node, and for every slot at both ends of every edge.
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
        """The choice that the values of x make at every node."""
        return [
            int(np.argmax(values[first:last]))
            for first, last in zip(self._starts[:-1], self._starts[1:], strict=True)
        ]


def _joined(parts: Sequence[Int64Array]) -> Int64Array:
    return np.concatenate([part.ravel() for part in parts])


def whole_bound(bound: float) -> float:
    """A dual bound as whole nanoseconds: times are, so the least time is not below it.

    What HiGHS is not exact to is taken off.
    """
    return -inf if bound == -inf else ceil(bound * (1 - TOLERANCE))
