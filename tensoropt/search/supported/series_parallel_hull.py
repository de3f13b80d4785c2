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
from tensoropt.search.pareto.hull import between, gap, lower_hull
from tensoropt.search.pareto.region import Weights
from tensoropt.search.scalar.series_parallel import weighted_elimination
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
    points = Points(problem)
    lines: list[tuple[Weights, float]] = []  # that no strategy is below

    def search(weights: Sequence[Weights]) -> list[Strategy]:
        found = in_threads(lambda pair: elimination.least(*pair), weights)
        lines.extend((pair, least) for pair, (least, _) in zip(weights, found, strict=True))
        return [strategy for _, strategy in found]

    def frontier() -> Frontier:
        known = () if incumbent is None else (incumbent.strategies,)
        every = np.concatenate([points.strategies, between(points.strategies), *known])
        return _proven(problem, every, lines)

    for strategy in search([(1.0, 0.0), (0.0, 1.0)]):
        points.add(strategy)
    keep(frontier)
    most = int(max(16, min(limits.hull_weights, limits.hull_additions / max(elimination.work, 1))))
    dichotomy(points, search, epsilon=epsilon, at_once=_AT_ONCE, most=most)
    found = frontier()
    keep(found)
    costs = list(zip(found.memory.tolist(), found.time.tolist(), strict=True))
    hull = pairwise(lower_hull(costs))
    wide = [ends for ends in hull if gap((costs[ends[0]], costs[ends[1]])) > _WIDE * epsilon]
    more = recombine(problem, found, wide, limits)
    if more.size:
        found = _proven(problem, np.concatenate([found.strategies, more]), lines)
    return Outcome.of(found)


def _proven(
    problem: Problem, strategies: Int32Array, lines: Sequence[tuple[Weights, float]]
) -> Frontier:
    """The frontier of some strategies, with the gap that lines prove."""
    found = reduced_frontier(*problem.costs(strategies), strategies)
    weights, least = zip(*lines, strict=True)
    return replace(found, within=proven_gap_of_lines(weights, least, found))
