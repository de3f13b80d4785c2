"""The least weighted cost of all strategies of a series-parallel problem.

With one number for each choice, a node that joins two others is eliminated by a product of matrices
over (min, +) between slots of its neighbours, not their configurations:

    T(a, b) = min over states k of A(a, s(k)) + cost(k) + B(s'(k), b).

What is eliminated again and again, as the layers of a network, is worked out once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numba
import numpy as np

from tensoropt.arrays import Float64Array, Int32Array, Int64Array
from tensoropt.problem.model import CostTable, Edge, Node, Problem
from tensoropt.search.bounds.passes import least_of_columns, to_units, whole_units
from tensoropt.search.like_subgraphs import Numbering
from tensoropt.search.scalar.series_parallel_order import (
    Fold,
    Merge,
    Series,
    SeriesPlan,
    series_plan,
)

__all__ = ["WeightedElimination", "weighted_elimination"]


# Rows of a product at a time: what is found of them stays in the first cache.
_ROWS = 16


def weighted_elimination(problem: Problem, most_work: float = inf) -> WeightedElimination | None:
    """The eliminations of a problem.

    None where the graph is not series-parallel, or a pair of weights would take more than
    ``most_work`` additions.
    """
    plan = series_plan(problem)
    if plan is None:
        return None
    found = WeightedElimination(problem, plan)
    return found if found.work <= most_work else None


class WeightedElimination:
    """A problem and the order in which its nodes are eliminated, for any weights.

    Args:
        problem: whose costs are weighted.
        plan: its eliminations.

    Attributes:
        work: additions for one pair of weights.
    """

    def __init__(self, problem: Problem, plan: SeriesPlan) -> None:
        self._problem = problem
        self._plan = plan
        self._alike = _Alike(problem, plan)
        self._same = [self._alike.of(number, step) for number, step in enumerate(plan.steps)]
        self.work = sum(
            plan.work_of(step)
            for step, same in zip(plan.steps, self._same, strict=True)
            if same is None
        )
        self._of_time: dict[int, Float64Array] | None = None

    def least(self, per_nanosecond: float, per_byte: float) -> tuple[float, Int32Array]:
        """The least of ``per_nanosecond`` * time + ``per_byte`` * memory, and whose it is.

        Returns:
            The least, or less by some 2**-30 of it, as tables are rounded down; and int32[nodes], a
            strategy that has it, to within as much.
        """
        costs = [_weighted(node, per_nanosecond, per_byte) for node in self._problem.nodes]
        tables = self._tables(per_nanosecond, per_byte)
        gains: dict[int, Float64Array] = {}
        total = 0.0
        for number, (step, same) in enumerate(zip(self._plan.steps, self._same, strict=True)):
            if isinstance(step, Merge | Series):
                tables[step.new] = (
                    self._joined(step, costs, tables)
                    if same is None
                    else tables[self._plan.steps[same].new]  # type: ignore[union-attr]
                )
            elif step.link is None:
                total += float(costs[step.node].min())
            else:
                gains[number] = (
                    self._folded(step, costs[step.node], tables) if same is None else gains[same]
                )
                other = self._plan.links[step.link].other(step.node)
                costs[other] = costs[other] + gains[number]
        return total, self._strategy(costs, tables)

    def _tables(self, per_nanosecond: float, per_byte: float) -> dict[int, Float64Array]:
        """Of every edge; edges that are alike share theirs."""
        takes_memory = self._problem.edges_take_memory
        if per_nanosecond == 1 and not takes_memory and self._of_time is not None:
            return dict(self._of_time)
        known: dict[CostTable, Float64Array] = {}
        tables = {}
        for number, edge in enumerate(self._problem.edges):
            if edge.costs not in known:
                known[edge.costs] = per_nanosecond * edge.time
                if takes_memory:
                    known[edge.costs] += per_byte * edge.memory
            tables[number] = known[edge.costs]
        if per_nanosecond == 1 and not takes_memory:
            self._of_time = dict(tables)
        return tables

    def _joined(
        self, step: Merge | Series, costs: Sequence[Float64Array], tables: dict[int, Float64Array]
    ) -> Float64Array:
        """The table of a new link."""
        if isinstance(step, Series):
            return self._through(step, costs[step.node], tables)
        one: Float64Array
        one, other = (
            tables[link].take(rows, axis=0).take(columns, axis=1)
            for link, (rows, columns) in zip(step.links, step.cells, strict=True)
        )
        one += other
        return one

    def _through(
        self, step: Series, costs: Float64Array, tables: dict[int, Float64Array]
    ) -> Float64Array:
        near = _from(self._plan, step.links[0], step.node, tables).T
        far = _from(self._plan, step.links[1], step.node, tables)
        states = np.full(step.slots[0].size, inf)
        np.minimum.at(states, step.state, costs)
        return _product(np.ascontiguousarray(near), step.slots[0], states, step.slots[1], far)

    def _folded(
        self, step: Fold, costs: Float64Array, tables: dict[int, Float64Array]
    ) -> Float64Array:
        """What the configurations of a node's neighbour gain by the best of the node's."""
        assert step.link is not None
        link = self._plan.links[step.link]
        least = np.full(link.count(step.node), inf)
        np.minimum.at(least, link.slots(step.node), costs)
        table = _from(self._plan, step.link, step.node, tables)
        gained: Float64Array = (table + least[:, None]).min(axis=0)
        return gained[link.slots(link.other(step.node))]

    def _strategy(
        self, costs: Sequence[Float64Array], tables: dict[int, Float64Array]
    ) -> Int32Array:
        """Every node's best configuration, given those that were eliminated after it."""
        found = np.zeros(len(costs), dtype=np.int32)
        for step in reversed(self._plan.steps):
            if isinstance(step, Merge):
                continue
            total = costs[step.node].copy()
            for number in step.links:
                link = self._plan.links[number]
                other = link.other(step.node)
                row = _from(self._plan, number, other, tables)[link.slots(other)[found[other]]]
                total += row[link.slots(step.node)]
            found[step.node] = int(total.argmin())
        return found


def _from(plan: SeriesPlan, link: int, node: int, tables: dict[int, Float64Array]) -> Float64Array:
    """A link's table whose rows are the slots at ``node``."""
    return tables[link] if plan.links[link].low == node else tables[link].T


def _weighted(part: Node | Edge, per_nanosecond: float, per_byte: float) -> Float64Array:
    found: Float64Array = per_nanosecond * part.time + per_byte * part.memory
    return found


class _Alike:
    """Which steps do what an earlier one did: the same with equal costs and slots, by numbers for
    all that is different."""

    def __init__(self, problem: Problem, plan: SeriesPlan) -> None:
        self._plan = plan
        self._number = Numbering().of
        self._first: dict[int, int] = {}
        self._costs = [self._number("node", node.time, node.memory) for node in problem.nodes]
        self._tables = {
            number: self._number("edge", edge.costs) for number, edge in enumerate(problem.edges)
        }

    def of(self, number: int, step: Merge | Fold | Series) -> int | None:
        """The earlier step, if there is one. Steps are asked for in order."""
        links = [self._plan.links[link] for link in step.links]
        tables = [self._tables[link] for link in step.links]
        if isinstance(step, Merge):
            key = self._number("merge", *tables, *(each for pair in step.cells for each in pair))
            self._tables[step.new] = key
        else:
            lower = [link.low == step.node for link in links]
            slots = (
                [step.state, *step.slots]
                if isinstance(step, Series)
                else [each for link in links for each in (link.low_slots, link.high_slots)]
            )
            kind = type(step).__name__
            key = self._number(kind, *tables, self._costs[step.node], *lower, *slots)
            if isinstance(step, Series):
                self._tables[step.new] = key
            else:
                for link in links:
                    other = link.other(step.node)
                    self._costs[other] = self._number("gain", self._costs[other], key)
        earlier = self._first.setdefault(key, number)
        return None if earlier == number else earlier


def _product(
    near: Float64Array,
    near_slots: Int64Array,
    states: Float64Array,
    far_slots: Int64Array,
    far: Float64Array,
) -> Float64Array:
    """The least over states, for every row of ``near`` and every column of ``far``; rounded down to
    units (`tensoropt.search.bounds.passes`)."""
    low, high = _extremes(near, near_slots, states)
    far_low, far_high = float(far.min()), float(far.max())
    scale = whole_units(max(high - low, far_high - far_low))
    left = np.empty((near.shape[0], states.size), dtype=np.int32)
    _left(near, near_slots, states, low, scale, left)
    right = np.empty(far.shape, dtype=np.int32)
    to_units((far - far_low).ravel(), scale, right.reshape(-1))
    right = right[far_slots]
    out = np.full((near.shape[0], far.shape[1]), np.iinfo(np.int32).max, dtype=np.int32)
    for top in range(0, out.shape[0], _ROWS):
        least_of_columns(right, left[top : top + _ROWS], out[top : top + _ROWS])
    found: Float64Array = out / scale + (low + far_low)
    return found


@numba.njit(cache=True, nogil=True)
def _extremes(near: Float64Array, slots: Int64Array, states: Float64Array) -> tuple[float, float]:
    """The least and the largest of ``near`` with states added to its columns."""
    low, high = np.inf, -np.inf
    for row in range(near.shape[0]):
        for state in range(states.size):
            cost = near[row, slots[state]] + states[state]
            low, high = min(low, cost), max(high, cost)
    return low, high


@numba.njit(cache=True, nogil=True)
def _left(
    near: Float64Array,
    slots: Int64Array,
    states: Float64Array,
    low: float,
    scale: float,
    out: Int32Array,
) -> None:
    """``near`` with states added to its columns, above ``low``, in units."""
    for row in range(near.shape[0]):
        for state in range(states.size):
            cost = near[row, slots[state]] + states[state] - low
            out[row, state] = np.int32(np.floor(cost * scale))
