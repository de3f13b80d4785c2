"""Strategies of least weighted cost, by exact search of large neighbourhoods of a known one.

Bounds say which configurations are promising, but where hundreds of operators have dozens that cost
nearly the same, the best of each do not fit together. What fits a known strategy is found by
looking at each node with its neighbours as they are; of all that is found the best combination is
computed exactly (bucket elimination), and is the next known strategy (large neighbourhood search,
Shaw, "Using constraint programming and local search methods to solve vehicle routing problems",
1998).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.search.least_sum import Term, least_sum
from tensoropt.search.problem import Edge, Problem

__all__ = ["Neighbourhoods"]

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

# How many configurations of a node are looked at from each side; fewer where that is too much.
_BEST = (6, 3, 1)
_MOST_CELLS = 1 << 20
_MOST_ROUNDS = 5
# Weighted costs are whole numbers below this.
_LARGEST = 2**60


class Neighbourhoods:
    """The neighbourhoods of one problem's strategies.

    Args:
        problem: what strategies are of.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._edges: list[list[tuple[Edge, bool]]] = [[] for _ in problem.nodes]
        for edge in problem.edges:
            self._edges[edge.source].append((edge, True))
            self._edges[edge.target].append((edge, False))
        self._has_memory = any(edge.memory.any() for edge in problem.edges)

    def improved(
        self, weights: tuple[float, float], strategy: Sequence[int], best: Sequence[Int64Array]
    ) -> list[int]:
        """A strategy that no neighbour of it betters much.

        Args:
            weights: of a nanosecond and of a byte.
            strategy: to begin with.
            best: for each node configurations to look at in any case.
        """
        known, least = list(strategy), self._cost(weights, strategy)
        for _ in range(_MOST_ROUNDS):
            found = self._best_near(weights, known, best)
            cost = self._cost(weights, found)
            if cost >= least:
                break
            known, least = found, cost
        return known

    def _cost(self, weights: tuple[float, float], strategy: Sequence[int]) -> float:
        memory, time = self._problem.cost([int(number) for number in strategy])
        return weights[0] * time + weights[1] * memory

    def _best_near(
        self, weights: tuple[float, float], known: list[int], best: Sequence[Int64Array]
    ) -> list[int]:
        for count in _BEST:
            kept = [
                self._near(node, weights, known, best[node], count) for node in range(len(known))
            ]
            terms = self._terms(weights, kept)
            chosen = least_sum([own.size for own in kept], terms, _MOST_CELLS)
            if chosen is not None:
                return [int(own[number]) for own, number in zip(kept, chosen, strict=True)]
        return known

    def _near(
        self,
        node: int,
        weights: tuple[float, float],
        known: list[int],
        best: Int64Array,
        count: int,
    ) -> Int64Array:
        """Configurations of a node that are good beside all its neighbours, all but one, or one."""
        own = self._problem.nodes[node]
        if own.configurations == 1:
            return np.zeros(1, dtype=np.int64)
        alone = weights[0] * own.time + weights[1] * own.memory
        beside = [self._beside(end, weights, known) for end in self._edges[node]]
        whole = np.sum([alone, *beside], axis=0)
        views = [whole, *(whole - each for each in beside), *(alone + each for each in beside)]
        found = [_lowest(view, count) for view in views[: 1 if len(beside) == 1 else None]]
        near: Int64Array = np.unique(np.concatenate([[known[node]], best, *found]))
        return near

    def _beside(
        self, end: tuple[Edge, bool], weights: tuple[float, float], known: list[int]
    ) -> Float64Array:
        """What an edge costs each configuration of a node, the other end being as it is."""
        edge, is_source = end
        if is_source:
            cells, slots = (slice(None), edge.target_slots[known[edge.target]]), edge.source_slots
        else:
            cells, slots = (edge.source_slots[known[edge.source]], slice(None)), edge.target_slots
        costs: Float64Array = weights[0] * edge.time[cells]
        if self._has_memory:
            costs = costs + weights[1] * edge.memory[cells]
        return costs[slots]

    def _terms(self, weights: tuple[float, float], kept: Sequence[Int64Array]) -> list[Term]:
        """Weighted costs in whole numbers, of what is in ``kept``."""
        found: dict[tuple[int, ...], Float64Array] = {}
        for number, (node, own) in enumerate(zip(self._problem.nodes, kept, strict=True)):
            found[number,] = weights[0] * node.time[own] + weights[1] * node.memory[own]
        for edge in self._problem.edges:
            cell = np.ix_(
                edge.source_slots[kept[edge.source]], edge.target_slots[kept[edge.target]]
            )
            costs = weights[0] * edge.time[cell]
            if self._has_memory:
                costs = costs + weights[1] * edge.memory[cell]
            scope = edge.source, edge.target
            found[scope] = found[scope] + costs if scope in found else costs
        most = sum(float(costs.max()) for costs in found.values())
        scale = _LARGEST / most if most else 1.0
        return [(scope, np.rint(scale * costs).astype(np.int64)) for scope, costs in found.items()]


def _lowest(costs: Float64Array, count: int) -> Int64Array:
    if costs.size <= count:
        return np.arange(costs.size)
    found: Int64Array = np.argpartition(costs, count)[:count]
    return found
