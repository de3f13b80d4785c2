"""The least weighted cost of a series-parallel problem, exactly.

With one number for each choice, a node that joins two others is eliminated by a product of matrices
over (min, +) between slots of its neighbours, not their configurations:

    T(a, b) = min over states k of A(a, s(k)) + cost(k) + B(s'(k), b).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numba
import numpy as np
import numpy.typing as npt

from tensoropt.search.problem import Edge, Node, Problem
from tensoropt.search.series_plan import Fold, Merge, Series, SeriesPlan, series_plan

__all__ = ["WeightedElimination", "weighted_elimination"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Float64Array = npt.NDArray[np.float64]


def weighted_elimination(problem: Problem, most_work: float = inf) -> WeightedElimination | None:
    """The eliminations of a problem.

    None where the graph is not series-parallel, or a pair of weights would take more than
    ``most_work`` additions.
    """
    plan = series_plan(problem, most_work)
    return None if plan is None else WeightedElimination(problem, plan)


class WeightedElimination:
    """A problem and the order in which its nodes are eliminated, for any weights.

    Args:
        problem: whose costs are weighted.
        plan: its eliminations.
    """

    def __init__(self, problem: Problem, plan: SeriesPlan) -> None:
        self._problem = problem
        self._plan = plan

    @property
    def work(self) -> int:
        """Additions for one pair of weights."""
        return self._plan.work

    def least(self, per_nanosecond: float, per_byte: float) -> tuple[float, Int32Array]:
        """The least of ``per_nanosecond`` * time + ``per_byte`` * memory, and whose it is.

        Returns:
            The least as exact as sums of float64 are, and int32[nodes], a strategy that has it.
        """
        costs = [_weighted(node, per_nanosecond, per_byte) for node in self._problem.nodes]
        tables = self._tables(per_nanosecond, per_byte)
        total = 0.0
        for step in self._plan.steps:
            if isinstance(step, Merge):
                one, other = (
                    tables[link][np.ix_(*cells)]
                    for link, cells in zip(step.links, step.cells, strict=True)
                )
                one += other
                tables[step.new] = one
            elif isinstance(step, Series):
                tables[step.new] = self._through(step, costs[step.node], tables)
            elif step.link is None:
                total += float(costs[step.node].min())
            else:
                other_node, gained = self._folded(step, costs[step.node], tables)
                costs[other_node] = costs[other_node] + gained
        return total, self._strategy(costs, tables)

    def _tables(self, per_nanosecond: float, per_byte: float) -> dict[int, Float64Array]:
        """Of every edge; edges that are alike share theirs."""
        known: dict[tuple[int, int], Float64Array] = {}
        tables = {}
        for number, edge in enumerate(self._problem.edges):
            key = id(edge.time), id(edge.memory)
            if key not in known:
                known[key] = _weighted(edge, per_nanosecond, per_byte)
            tables[number] = known[key]
        return tables

    def _through(
        self, step: Series, costs: Float64Array, tables: dict[int, Float64Array]
    ) -> Float64Array:
        near = _from(self._plan, step.links[0], step.node, tables).T
        far = _from(self._plan, step.links[1], step.node, tables)
        states = np.full(step.slots[0].size, inf)
        np.minimum.at(states, step.state, costs)
        out = np.full((near.shape[0], far.shape[1]), inf)
        _product(
            np.ascontiguousarray(near), step.slots[0], states, step.slots[1],
            np.ascontiguousarray(far), out,
        )  # fmt: skip
        return out

    def _folded(
        self, step: Fold, costs: Float64Array, tables: dict[int, Float64Array]
    ) -> tuple[int, Float64Array]:
        """The neighbour, and what its configurations gain by the best of the node's."""
        assert step.link is not None
        link = self._plan.links[step.link]
        other = link.other(step.node)
        least = np.full(link.count(step.node), inf)
        np.minimum.at(least, link.slots(step.node), costs)
        table = _from(self._plan, step.link, step.node, tables)
        gained: Float64Array = (table + least[:, None]).min(axis=0)[link.slots(other)]
        return other, gained

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


@numba.njit(cache=True, nogil=True)
def _product(
    near: Float64Array,
    near_slots: Int64Array,
    states: Float64Array,
    far_slots: Int64Array,
    far: Float64Array,
    out: Float64Array,
) -> None:
    """The least over states, for every row of ``near`` and every column of ``far``."""
    for row in range(near.shape[0]):
        for state in range(states.size):
            cost = near[row, near_slots[state]] + states[state]
            slot = far_slots[state]
            for column in range(far.shape[1]):
                out[row, column] = min(out[row, column], cost + far[slot, column])
