"""The fastest strategy of a problem, whatever memory it takes: what solvers of one objective do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int64Array
from tensoropt.problem.model import CostTable, EdgeKind, Node, Problem
from tensoropt.problem.restrict import restrict
from tensoropt.search.bounds.message_passing import ROUNDING, Bounds, WeightedBounds
from tensoropt.search.bounds.reduced_cost_fixing import best_of
from tensoropt.search.find import frontier_tracking
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.scalar.bucket_elimination import least_sum, time_terms

__all__ = ["least_time", "least_time_among", "single_strategy"]


# Of a table of the elimination.
_MOST_CELLS = 1 << 24
# Where tables stay smaller by this factor, nothing is left out first; nor are they larger among
# promising configurations, where they are made several times.
_FEWER = 64
_PROMISING_CELLS = 1 << 22
# Sweeps of every round of bounds.
_SWEEPS = (12, 24, 48)
_FIRST_PROMISING = 4


def single_strategy(
    problem: Problem, strategy: npt.ArrayLike, *, exact: bool = True, within: float | None = None
) -> Frontier:
    """The frontier of a solver that finds one strategy, with its costs by equation 3.

    Args:
        problem: that it is of.
        strategy: a configuration for every node.
        exact: whether it is the one that the solver is after.
        within: by which share another may be faster at most, None if not known.
    """
    row = np.asarray(strategy, dtype=np.int32)
    memory, time = problem.cost([int(number) for number in row])
    return Frontier(np.array([memory]), np.array([time]), row[None], exact=exact, within=within)


def least_time(problem: Problem) -> Frontier:
    """The one strategy of least time; which, of several equally fast, its memory does not say."""
    return least_time_among(problem, [np.arange(node.configurations) for node in problem.nodes])


def least_time_among(
    problem: Problem, kept: Sequence[Int64Array], most_cells: int = _MOST_CELLS
) -> Frontier:
    """`least_time` with some configurations of every node, by the numbers of ``problem``.

    Eliminations with one number for each choice, as OptCNN's. Where their tables would be
    large, a fast strategy is found among promising configurations, and those are left out that
    bounds prove to be slower. Where tables still would be large, that strategy is the answer: not
    exact, and by which share another may be faster is known.
    """
    numbers = _least(problem, kept, most_cells // _FEWER)
    if numbers is not None:
        return single_strategy(problem, _numbers(kept, numbers))
    alone = _without_memory(problem)
    if alone.has_negative:
        # Bounds are for costs that are not negative. With memories that are all 0 every set of
        # points that frontier tracking keeps is a single one.
        found = frontier_tracking(restrict(alone, kept))
        return single_strategy(problem, _numbers(kept, found.strategies[0]), exact=found.exact)
    return _by_bounds(problem, alone, kept, most_cells)


def _least(problem: Problem, kept: Sequence[Int64Array], most_cells: int) -> list[int] | None:
    return least_sum([own.size for own in kept], time_terms(problem, kept), most_cells)


def _numbers(kept: Sequence[Int64Array], places: Sequence[int] | npt.NDArray[Any]) -> list[int]:
    return [int(own[place]) for own, place in zip(kept, places, strict=True)]


def _by_bounds(
    problem: Problem, alone: Problem, kept: Sequence[Int64Array], most_cells: int
) -> Frontier:
    """In rounds of bounds: search what is promising, leave out what is slower, try what is left.

    Args:
        problem: that strategies are of.
        alone: the same without memory.
        kept: the configurations of each node to choose from.
        most_cells: of a table.
    """
    fewer_cells = min(_PROMISING_CELLS, most_cells)
    best: list[int] | None = None
    fastest, least = np.inf, 0.0
    for sweeps in _SWEEPS:
        part = restrict(alone, kept)
        table = WeightedBounds(part)
        bounds = table.bounds(1.0, 0.0, sweeps)
        least = max(least, bounds.least)
        before = fastest
        best = _promising(alone, kept, bounds, table, best, fewer_cells)
        fastest = alone.cost(best)[1]
        alive = np.split(bounds.min_marginals <= fastest * (1 + ROUNDING), table.start[1:-1])
        fewer = [own[marks] for own, marks in zip(kept, alive, strict=True)]
        if not all(own.size for own in fewer):
            return single_strategy(problem, best)  # nothing is faster
        size, left = (sum(own.size for own in each) for each in (kept, fewer))
        # Large tables take long to come to nothing: only where much has been left out.
        numbers = _least(alone, fewer, most_cells if left < size / 2 else fewer_cells)
        if numbers is not None:
            return single_strategy(problem, _numbers(fewer, numbers))
        if fastest == before and left == size:
            break
        kept = fewer
    assert best is not None
    within = fastest / least - 1 if least > 0 else None
    return single_strategy(problem, best, exact=False, within=within)


def _promising(
    problem: Problem,
    kept: Sequence[Int64Array],
    bounds: Bounds,
    table: WeightedBounds,
    best: list[int] | None,
    most_cells: int,
) -> list[int]:
    """The fastest strategy of configurations with low bounds, and of those of a known one: twice as
    many of each node, and again, until tables would be too large."""
    most = max(own.size for own in kept)
    if best is None:
        best = _numbers(kept, [int(own[0]) for own in best_of([bounds], table.start, 1)])
    count = _FIRST_PROMISING
    while True:
        low = best_of([bounds], table.start, count)
        few = [
            np.union1d(own[places], [known])
            for own, places, known in zip(kept, low, best, strict=True)
        ]
        numbers = _least(problem, few, most_cells)
        if numbers is None:
            return best
        best = _numbers(few, numbers)
        if count >= most:
            return best
        count *= 2


def _without_memory(problem: Problem) -> Problem:
    nodes = tuple(Node(node.name, np.zeros_like(node.time), node.time) for node in problem.nodes)
    known: dict[EdgeKind, EdgeKind] = {}
    for kind in dict.fromkeys(edge.kind for edge in problem.edges):
        costs = CostTable(np.zeros_like(kind.costs.time), kind.costs.time)
        known[kind] = replace(kind, costs=costs)
    edges = tuple(replace(edge, kind=known[edge.kind]) for edge in problem.edges)
    return Problem(nodes, edges)
