"""In which order a series-parallel graph comes down to nothing, and between which slots.

Three eliminations, the paper's (section 4.1) for one number a choice: a node with one neighbour is
folded into it, a node with two becomes a link between them, and links that join the same two nodes
become one, whose slots are the pairs of theirs. Chains, residual and Inception blocks with their
variables come down to nothing so. None of it depends on costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import TypeAlias

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.problem.model import Problem
from tensoropt.search.elimination_queue import EliminationQueue

__all__ = ["Fold", "Link", "Merge", "Series", "SeriesPlan", "series_plan"]


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """An edge, or what came of eliminations, between two nodes with ``low < high``.

    Attributes:
        low_slots, high_slots: int64[K], the slot of each configuration.
        rows, columns: how many slots there are at the low node, and at the high one.
    """

    low: int
    high: int
    low_slots: Int64Array
    high_slots: Int64Array
    rows: int
    columns: int

    def slots(self, node: int) -> Int64Array:
        """The slots at one of its ends."""
        return self.low_slots if node == self.low else self.high_slots

    def count(self, node: int) -> int:
        """How many slots there are at one of its ends."""
        return self.rows if node == self.low else self.columns

    def other(self, node: int) -> int:
        """The node at its other end."""
        return self.high if node == self.low else self.low


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """Link ``new`` is the sum of two others.

    Attributes:
        cells: of each of both, int64 rows and columns for every row and column of the new one.
    """

    new: int
    links: tuple[int, int]
    cells: tuple[tuple[Int64Array, Int64Array], tuple[Int64Array, Int64Array]]


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """A node is folded into its only neighbour over ``link``; None where it has none left."""

    node: int
    link: int | None

    @property
    def links(self) -> tuple[int, ...]:
        """The links at the node."""
        return () if self.link is None else (self.link,)


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Link ``new`` goes through a node, from its lower neighbour to its higher one.

    Attributes:
        links: to the lower neighbour, and to the higher one.
        state: int64[K], for every configuration which of the states that differ in their slots.
        slots: int64[states] at both links.
    """

    node: int
    new: int
    links: tuple[int, int]
    state: Int64Array
    slots: tuple[Int64Array, Int64Array]


Step: TypeAlias = Merge | Fold | Series


@dataclass(frozen=True, slots=True, eq=False)
class SeriesPlan:
    """Eliminations of all nodes, in order.

    Attributes:
        links: the problem's edges first, then those that steps make.
        steps: what is done.
    """

    links: Sequence[Link]
    steps: Sequence[Step]

    def work_of(self, step: Step) -> int:
        """Additions that a step takes: products take nearly all."""
        if not isinstance(step, Series):
            return 0
        new = self.links[step.new]
        return new.rows * new.columns * step.state.size


def series_plan(problem: Problem) -> SeriesPlan | None:
    """A plan for a problem; None where the graph is not series-parallel."""
    builder = _Builder(problem)
    queue: EliminationQueue[int] = EliminationQueue()
    for node in range(len(problem.nodes)):
        queue.set(node, builder.work_of(node))
    while (best := queue.pop()) is not None:
        node, additions = best
        if additions == inf:
            return None
        for other in builder.eliminate(node):
            queue.set(other, builder.work_of(other))
    return SeriesPlan(builder.links, builder.steps)


class _Builder:
    """The graph while it is eliminated: for every node the link to each of its neighbours."""

    def __init__(self, problem: Problem) -> None:
        self.links = [
            Link(edge.source, edge.target, edge.source_slots, edge.target_slots, *edge.time.shape)
            for edge in problem.edges
        ]
        self.steps: list[Step] = []
        self._beside: list[dict[int, int]] = [{} for _ in problem.nodes]
        self._configurations = [node.configurations for node in problem.nodes]
        for number in range(len(problem.edges)):
            self._join(number)

    def work_of(self, node: int) -> float:
        """Additions that the elimination of a node takes: 0 for a fold, infinite for a node that
        joins three others or more."""
        beside = self._beside[node]
        if len(beside) < 2:
            return 0
        if len(beside) > 2:
            return inf
        ends = prod(self.links[link].count(other) for other, link in beside.items())
        return ends * self._configurations[node]

    def eliminate(self, node: int) -> list[int]:
        """Take a node out; returns those that were beside it."""
        beside = sorted(self._beside[node].items())
        for other, _ in beside:
            del self._beside[other][node]
        if len(beside) < 2:
            self.steps.append(Fold(node, beside[0][1] if beside else None))
        else:
            (low, low_link), (high, high_link) = beside
            near, far = self.links[low_link], self.links[high_link]
            state, slots = _pairs(near.slots(node), far.slots(node))
            new = Link(
                low, high, near.slots(low), far.slots(high), near.count(low), far.count(high)
            )
            self.steps.append(Series(node, len(self.links), (low_link, high_link), state, slots))
            self.links.append(new)
            self._join(len(self.links) - 1)
        return [other for other, _ in beside]

    def _join(self, number: int) -> None:
        """Put a link between its nodes; where they have one already, the sum of both."""
        link = self.links[number]
        known = self._beside[link.low].get(link.high)
        if known is not None:
            old = self.links[known]
            low, low_cells = _pairs(old.low_slots, link.low_slots)
            high, high_cells = _pairs(old.high_slots, link.high_slots)
            cells = (low_cells[0], high_cells[0]), (low_cells[1], high_cells[1])
            new = Link(link.low, link.high, low, high, low_cells[0].size, high_cells[0].size)
            self.steps.append(Merge(len(self.links), (known, number), cells))
            number = len(self.links)
            self.links.append(new)
        self._beside[link.low][link.high] = number
        self._beside[link.high][link.low] = number


def _pairs(one: Int64Array, other: Int64Array) -> tuple[Int64Array, tuple[Int64Array, Int64Array]]:
    """Pairs of slots that configurations have: the number of each one's, and both slots of it."""
    names = one * (int(other.max()) + 1) + other
    _, first, number = np.unique(names, return_index=True, return_inverse=True)
    return number.ravel(), (one[first], other[first])
