"""The lower hull of a series-parallel problem's frontier, and strategies near it.

On the hull are the supported strategies, each of least cost for some weights of time and memory.
`tensoropt.search.scalar.series_parallel` finds them among all strategies, however large the problem
is, and with each a line that no strategy is below: together they prove the frontier's gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tensoropt.arrays import Int32Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.proven_gap import proven_gap_of_lines
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier, reduced_frontier
from tensoropt.search.pareto.hull import between, gap, hull_of
from tensoropt.search.pareto.region import Weights
from tensoropt.search.scalar.series_parallel import WeightedElimination, weighted_elimination
from tensoropt.search.supported.points import Points, Strategy, dichotomy
from tensoropt.search.supported.recombination import recombine
from tensoropt.search.threads import in_threads
from tensoropt.search.watch import interruptible, keep

__all__ = ["series_parallel_hull"]

# Pairs of weights at a time: on every machine the same, so that the frontier is, too.
_AT_ONCE = 4
# Gaps so many times as wide as epsilon are filled with all that is between two strategies, narrower
# ones with little of it.
_WIDE = 20


@interruptible
def series_parallel_hull(
    problem: Problem, incumbent: Frontier | None, epsilon: float, limits: SearchLimits
) -> Outcome:
    """The frontier of a series-parallel problem, within a gap that it states; see `Solver`.

    Its supported strategies by `dichotomy`, and strategies on the way from each to the next, all of
    them where a gap is wide (`recombine`). Below a gap there may be strategies that no weights
    find: the proven gap says how far below they can be.

    Args:
        problem: with costs that are not negative.
        incumbent: strategies to begin with.
        epsilon: more than 0.
        limits: of weights and additions.

    Returns:
        An approximate frontier; too large where the graph is not series-parallel, or one pair of
        weights would take too many additions.
    """
    elimination = weighted_elimination(problem, limits.hull_additions_each)
    if elimination is None:
        return Outcome.too_large(incumbent)
    hull = _Hull(problem, elimination, incumbent)
    most = limits.hull_additions / max(elimination.work, 1)
    for strategy in hull.search([(1.0, 0.0), (0.0, 1.0)]):
        hull.points.add(strategy)
    keep(hull.frontier)
    dichotomy(
        hull.points,
        hull.search,
        epsilon=epsilon,
        at_once=_AT_ONCE,
        most=int(max(16, min(limits.hull_weights, most))),
    )
    frontier = hull.frontier()
    keep(frontier)
    return Outcome.of(hull.fill(frontier, epsilon, limits))


class _Hull:
    """Supported strategies, and the lines that no strategy is below."""

    def __init__(
        self, problem: Problem, elimination: WeightedElimination, incumbent: Frontier | None
    ) -> None:
        self.points = Points(problem)
        self._problem, self._elimination, self._incumbent = problem, elimination, incumbent
        self._lines: list[tuple[Weights, float]] = []

    def search(self, weights: Sequence[Weights]) -> list[Strategy]:
        """The strategies of least cost for some weights."""
        found = in_threads(lambda pair: self._elimination.least(*pair), weights)
        self._lines += [(pair, least) for pair, (least, _) in zip(weights, found, strict=True)]
        return [strategy for _, strategy in found]

    def frontier(self) -> Frontier:
        """Supported strategies, those between them and known ones."""
        supported = self.points.strategies
        parts = [supported, between(supported)]
        if self._incumbent is not None:
            parts.append(self._incumbent.strategies)
        return self._of(np.concatenate(parts))

    def fill(self, frontier: Frontier, epsilon: float, limits: SearchLimits) -> Frontier:
        """With all that is between strategies where gaps are wide."""
        costs = list(zip(frontier.memory.tolist(), frontier.time.tolist(), strict=True))
        hull = hull_of(frontier.memory, frontier.time)
        wide = [
            (one, other)
            for one, other in pairwise(hull)
            if gap((costs[one], costs[other])) > _WIDE * epsilon
        ]
        more = recombine(self._problem, frontier, wide, limits)
        return self._of(np.concatenate([frontier.strategies, more])) if more.size else frontier

    def _of(self, strategies: Int32Array) -> Frontier:
        found = reduced_frontier(*self._problem.costs(strategies), strategies)
        weights, least = zip(*self._lines, strict=True)
        return replace(found, within=proven_gap_of_lines(weights, least, found))
