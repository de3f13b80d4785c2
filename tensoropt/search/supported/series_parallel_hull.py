"""The lower hull of a series-parallel problem's frontier, and strategies near it.

On the hull are the supported strategies, each of least cost for some weights of time and memory.
`tensoropt.search.scalar.series_parallel` finds them among all strategies, however large the problem
is, each with a line that no strategy is below: together the lines prove the frontier's gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tensoropt.arrays import Int32Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.corner_gaps import narrowest, proven_gap_of_lines
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.hull import Cost, gap, hull_of, slope
from tensoropt.search.pareto.region import Weights
from tensoropt.search.scalar.series_parallel import weighted_elimination
from tensoropt.search.supported.joining import joined, joined_with_between, recombine
from tensoropt.search.threads import in_threads
from tensoropt.search.tolerances import FILLED_GAP
from tensoropt.search.watch import interruptible, keep, tell

__all__ = ["series_parallel_hull"]

# Pairs of weights at a time, the same on every machine, so that frontiers are, too.
_AT_ONCE = 4


@interruptible
def series_parallel_hull(
    problem: Problem, incumbent: Frontier | None, epsilon: float, limits: SearchLimits
) -> Outcome:
    """Return the frontier of a series-parallel problem, within a gap that it states; see `Solver`.

    Supported strategies are found by dichotomy, and strategies between neighbours are added: all of
    them where a gap is wide (`recombine`). Below a gap there may be strategies that no weights
    find; the proven gap says how far below.

    Args:
        problem: with costs that are not negative.
        incumbent: strategies to begin with.
        epsilon: more than 0.
        limits: of weights and additions.

    Returns:
        An approximate frontier. Too large where the graph is not series-parallel, or one pair of
            weights would take too many additions.
    """
    elimination = weighted_elimination(FlatGraph.of(problem), limits.hull_additions_each)
    if elimination is None:
        return Outcome(incumbent, is_too_large=True)
    lines: list[tuple[Weights, float]] = []  # that no strategy is below

    def search(known: Frontier | None, weights: Sequence[Weights]) -> Int32Array:
        if known is not None:
            keep(lambda: proven(known))
        results = in_threads(lambda pair: elimination.least(*pair), weights)
        lines.extend((pair, each.cost) for pair, each in zip(weights, results, strict=True))
        return np.array([each.strategy for each in results])

    def proven(known: Frontier) -> Frontier:
        weights, least = zip(*lines, strict=True)
        within = proven_gap_of_lines(weights, least, known)
        return replace(known, within=narrowest(within, known.within))

    frontier = joined(problem, incumbent, search(None, [(1.0, 0.0), (0.0, 1.0)]))
    most = int(max(16, min(limits.hull_weights, limits.hull_additions / max(elimination.work, 1))))
    frontier = _dichotomy(problem, frontier, search, epsilon, most)
    frontier = proven(joined_with_between(problem, frontier))
    keep(frontier)
    hull = pairwise(hull_of(frontier.memory, frontier.time))
    wide = [
        ends
        for ends in hull
        if gap((frontier[ends[0]][:2], frontier[ends[1]][:2])) > FILLED_GAP * epsilon
    ]
    return Outcome(proven(joined(problem, frontier, recombine(problem, frontier, wide, limits))))


def _dichotomy(
    problem: Problem,
    known: Frontier,
    search: Callable[[Frontier, Sequence[Weights]], Int32Array],
    epsilon: float,
    most: int,
) -> Frontier:
    """Search between neighbours on the hull, the widest gaps first.

    The next weights are those for which two neighbours cost the same (Aneja and Nair, "Bicriteria
    transportation problem", 1979). The search ends when all gaps not searched yet are at most
    ``epsilon``, or after ``most`` pairs of weights.
    """
    tried: set[tuple[Cost, Cost]] = set()
    for number in range(0, most, _AT_ONCE):
        hull = [known[corner][:2] for corner in hull_of(known.memory, known.time)]
        gaps = [ends for ends in pairwise(hull) if ends not in tried and gap(ends) > epsilon]
        if not gaps:
            break
        tell("supported strategies", number, most)
        widest = sorted(gaps, key=gap)[-_AT_ONCE:]
        tried.update(widest)
        known = joined(problem, known, search(known, [(1.0, slope(*ends)) for ends in widest]))
    return known
