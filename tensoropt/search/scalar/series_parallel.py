"""The least weighted cost of all strategies of a series-parallel problem.

Three eliminations, the paper's (section 4.1) for one number a choice: a node with one neighbour is
folded into it, a node with two becomes a link between them, and links that join the same two nodes
become one, whose slots are the pairs of theirs. Chains, residual and Inception blocks with their
variables come down to nothing so. A node that joins two others is eliminated by a product of
matrices over (min, +) between slots of its neighbours, not their configurations:

    T(a, b) = min over states k of A(a, s(k)) + cost(k) + B(s'(k), b).

In which order, and between which slots, does not depend on costs. So the eliminations are worked
out once, as expressions over nodes' costs and edges' tables, and evaluated for any weights. Equal
expressions, as of the layers of a network, are one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, prod
from typing import TypeAlias

import numpy as np

from tensoropt.arrays import Float64Array, Int32Array, Int64Array
from tensoropt.problem.model import CostTable, Node, Problem
from tensoropt.search.bounds.passes import least_of_columns, to_units, whole_units
from tensoropt.search.elimination_queue import EliminationQueue
from tensoropt.search.joint_slots import joint_keys
from tensoropt.search.like_subgraphs import Numbering
from tensoropt.search.watch import look_at_clock

__all__ = ["WeightedElimination", "weighted_elimination"]


_Constants: TypeAlias = tuple[int | Int64Array, ...]
_Formula: TypeAlias = tuple[Callable[..., Float64Array], tuple[int, ...], _Constants]

# Rows of a product at a time: what is found of them stays in the first cache.
_ROWS = 16


def weighted_elimination(problem: Problem, most_work: float = inf) -> WeightedElimination | None:
    """The eliminations of a problem.

    None where the graph is not series-parallel, or a pair of weights would take more than
    ``most_work`` additions.
    """
    found = WeightedElimination(problem)
    return found if found.work <= most_work and found.work < inf else None


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    """An edge, or what came of eliminations.

    Attributes:
        ends: its nodes, the lower number first.
        slots: at each end int64[K], the slot of every configuration.
        sizes: how many slots there are at each end.
        table: the number of its costs, [slots of the first end, slots of the second].
    """

    ends: tuple[int, int]
    slots: tuple[Int64Array, Int64Array]
    sizes: tuple[int, int]
    table: int


class WeightedElimination:
    """The eliminations of all nodes of a problem, to be evaluated for any weights.

    Args:
        problem: whose costs are weighted.

    Attributes:
        work: additions for one pair of weights, nearly all of them in products; infinite where the
            graph is not series-parallel.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.work: float = 0
        self._numbers = Numbering()
        # By number: what the problem costs, and what follows, of which earlier numbers.
        self._given: dict[int, Node | CostTable] = {}
        self._made: dict[int, _Formula] = {}
        # In the order of elimination: a node, its costs by then and the links that it has left.
        self._steps: list[tuple[int, int, list[_Link]]] = []
        self._costs = [self._numbers.of("node", node.time, node.memory) for node in problem.nodes]
        self._given.update(zip(self._costs, problem.nodes, strict=True))
        self._beside: list[dict[int, _Link]] = [{} for _ in problem.nodes]
        for edge in problem.edges:
            table = self._numbers.of("edge", edge.costs)
            self._given[table] = edge.costs
            slots = edge.source_slots, edge.target_slots
            rows, columns = edge.time.shape
            self._join(_Link((edge.source, edge.target), slots, (rows, columns), table))
        queue: EliminationQueue[int] = EliminationQueue()
        for node in range(len(problem.nodes)):
            queue.set(node, self._additions(node))
        while (best := queue.pop()) is not None:
            if best[1] == inf:
                self.work = inf
                return
            for other in self._eliminate(best[0]):
                queue.set(other, self._additions(other))

    def least(self, per_nanosecond: float, per_byte: float) -> tuple[float, Int32Array]:
        """The least of ``per_nanosecond`` * time + ``per_byte`` * memory, and whose it is.

        Returns:
            The least, or less by some 2**-30 of it, as tables are rounded down; and int32[nodes], a
            strategy that has it, to within as much.
        """
        values: dict[int, Float64Array] = {}
        for number, part in self._given.items():
            values[number] = per_nanosecond * part.time
            if isinstance(part, Node) or self._problem.edges_take_memory:
                values[number] += per_byte * part.memory
        for number, (function, inputs, constants) in self._made.items():
            values[number] = function(*(values[each] for each in inputs), *constants)
        total = sum(float(values[cost].min()) for _, cost, links in self._steps if not links)
        found = np.zeros(len(self._problem.nodes), dtype=np.int32)
        for node, cost, links in reversed(self._steps):  # others are decided that are left by then
            own = values[cost].copy()
            for link in links:
                end = link.ends.index(node)
                slot = link.slots[1 - end][found[link.ends[1 - end]]]
                own += values[link.table].take(slot, axis=1 - end)[link.slots[end]]
            found[node] = int(own.argmin())
        return total, found

    def _additions(self, node: int) -> float:
        """To eliminate a node: 0 for a fold, infinite for one that joins three others or more."""
        beside = self._beside[node]
        if len(beside) != 2:
            return 0 if len(beside) < 2 else inf
        ends = prod(link.sizes[link.ends.index(far)] for far, link in beside.items())
        return ends * self._problem.nodes[node].configurations

    def _eliminate(self, node: int) -> list[int]:
        """Take a node out; returns those that were beside it."""
        others = sorted(self._beside[node])
        links = [self._beside[other].pop(node) for other in others]
        self._steps.append((node, self._costs[node], links))
        ends = [link.ends.index(node) for link in links]
        here = [link.slots[end] for link, end in zip(links, ends, strict=True)]
        there = [link.slots[1 - end] for link, end in zip(links, ends, strict=True)]
        if len(links) == 1:
            gain = self._value(_gain, (self._costs[node], links[0].table), *ends, *here, *there)
            self._costs[others[0]] = self._value(np.add, (self._costs[others[0]], gain))
        elif len(links) == 2:
            state, example = joint_keys(here, here[0].size)
            at_near, at_far = (slots[example] for slots in here)
            inputs = self._costs[node], links[0].table, links[1].table
            before = len(self._made)
            table = self._value(_through, inputs, *ends, state, at_near, at_far)
            rows, columns = (link.sizes[1 - end] for link, end in zip(links, ends, strict=True))
            self.work += (len(self._made) - before) * rows * columns * example.size
            low, high = others
            self._join(_Link((low, high), (there[0], there[1]), (rows, columns), table))
        return others

    def _join(self, link: _Link) -> None:
        """Put a link between its nodes; where they have one already, the sum of both."""
        low, high = link.ends
        known = self._beside[low].get(high)
        if known is not None:
            pairs = zip(known.slots, link.slots, strict=True)
            (rows, row), (columns, column) = (joint_keys(both, both[0].size) for both in pairs)
            one, other = ((own.slots[0][row], own.slots[1][column]) for own in (known, link))
            table = self._value(_sum, (known.table, link.table), *one, *other)
            link = _Link(link.ends, (rows, columns), (row.size, column.size), table)
        self._beside[low][high] = self._beside[high][low] = link

    def _value(
        self,
        function: Callable[..., Float64Array],
        inputs: tuple[int, ...],
        *constants: int | Int64Array,
    ) -> int:
        """The number of what a function makes of earlier values and constants."""
        number = self._numbers.of(function.__name__, *inputs, *constants)
        self._made.setdefault(number, (function, inputs, constants))
        return number


def _sum(one: Float64Array, other: Float64Array, *cells: Int64Array) -> Float64Array:
    """Two links' tables together, between pairs of their slots: rows and columns of each."""
    found: Float64Array = one.take(cells[0], axis=0).take(cells[1], axis=1)
    found += other.take(cells[2], axis=0).take(cells[3], axis=1)
    return found


def _gain(
    costs: Float64Array, table: Float64Array, end: int, here: Int64Array, there: Int64Array
) -> Float64Array:
    """What the configurations of a node's only neighbour gain by the best of the node's."""
    table = table.T if end else table
    least = np.full(len(table), inf)
    np.minimum.at(least, here, costs)
    gained: Float64Array = (table + least[:, None]).min(axis=0)
    return gained[there]


def _through(
    costs: Float64Array,
    near: Float64Array,
    far: Float64Array,
    near_end: int,
    far_end: int,
    state: Int64Array,
    at_near: Int64Array,
    at_far: Int64Array,
) -> Float64Array:
    """The least over a node's states, for all slots of its neighbours.

    In whole units, rounded down (`tensoropt.search.bounds.passes`).

    Args:
        costs: of its configurations.
        near, far: the tables of its two links.
        near_end, far_end: at which of their ends it is.
        state: of every configuration, by its pair of slots.
        at_near, at_far: int64[states], these slots.
    """
    near = np.ascontiguousarray(near if near_end else near.T)
    far = far.T if far_end else far
    states = np.full(at_near.size, inf)
    np.minimum.at(states, state, costs)
    low, far_low = float((near.min(axis=0)[at_near] + states).min()), float(far.min())
    high = float((near.max(axis=0)[at_near] + states).max())
    scale = whole_units(max(high - low, float(far.max()) - far_low))
    right = np.empty(far.shape, dtype=np.int32)
    to_units((far - far_low).ravel(), scale, right.reshape(-1))
    right = right[at_far]
    out = np.full((near.shape[0], far.shape[1]), np.iinfo(np.int32).max, dtype=np.int32)
    for top in range(0, len(out), _ROWS):
        look_at_clock()
        costs = near[top : top + _ROWS].take(at_near, axis=1) + states - low
        left = np.empty(costs.shape, dtype=np.int32)
        to_units(costs.reshape(-1), scale, left.reshape(-1))
        least_of_columns(right, left, out[top : top + _ROWS])
    found: Float64Array = out / scale + (low + far_low)
    return found
