"""Close the widest gaps of a known frontier of a series-parallel graph.

At the weights where bounds leave the widest gaps, the least of all strategies is found by
eliminations (`tensoropt.search.scalar.series_parallel`), among the configurations that bounds leave
for these weights. Then gaps in the hull are filled (`recombine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from tensoropt.arrays import Int32Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.corner_gaps import narrowest, proven_gap_of_lines
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, warm_bounds
from tensoropt.search.bounds.weights import wide_runs, widest_gaps
from tensoropt.search.effort import GAP_SWEEPS, MIXED_STRATEGIES
from tensoropt.search.limits import SearchLimits
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.hull import between, hull_of
from tensoropt.search.scalar.series_parallel import weighted_elimination
from tensoropt.search.supported.joining import joined, joined_with_between, proven, recombine
from tensoropt.search.threads import in_threads
from tensoropt.search.tolerances import ROUNDING
from tensoropt.search.watch import keep, tell

__all__ = ["close_gaps"]

# Pairs of weights at a time, the same on every machine, so that frontiers are, too.
_AT_ONCE = 2


def close_gaps(
    problem: Problem,
    table: WeightedBounds,
    incumbent: Frontier,
    bounds: Sequence[Bounds],
    epsilon: float,
    limits: SearchLimits,
) -> tuple[Frontier, Sequence[Bounds]]:
    """Return a better frontier, and all bounds that prove its gap.

    The least of all strategies is found for the weights of the widest gaps, a few at a time. It
    ends when all gaps are proven to be at most ``epsilon``, and at most `SearchLimits.closing_gap`
    if that stays within its additions, or when the gap no longer shrinks. Then strategies between
    neighbours are added.

    Args:
        problem: of a series-parallel graph.
        table: the problem in flat arrays.
        incumbent: the known strategies.
        bounds: which prove their gap.
        epsilon: more than 0.
        limits: of weights and additions.
    """
    spent, before = 0.0, None
    share = min(epsilon, limits.closing_gap)
    for number in range(0, limits.closing_weights, _AT_ONCE):
        weights = widest_gaps(incumbent, bounds, _AT_ONCE, share, halved=False)
        is_last = incumbent.is_within(epsilon) or incumbent.within == before
        if not weights or (is_last and spent > limits.closing_additions):
            break
        before = incumbent.within
        tell("least of all strategies", number, limits.closing_weights)
        lines = warm_bounds(table, weights, GAP_SWEEPS, bounds)
        results = in_threads(partial(_least, table, incumbent), lines)
        bounds = [*bounds, *(line for line, _, _ in results)]
        spent += sum(additions for _, _, additions in results)
        best = np.stack([strategy for _, strategy, _ in results])
        incumbent = _with_between(problem, joined(problem, incumbent, best), best)
        incumbent = _proven_by_lines(incumbent, bounds)
        keep(incumbent)
        if incumbent.is_within(share):
            return incumbent, bounds
    tell("between strategies", 0, 1)
    incumbent = joined_with_between(problem, incumbent)
    groups = [
        run[first : first + MIXED_STRATEGIES]
        for run in wide_runs(incumbent, bounds, share)
        for first in range(0, len(run) - 1, MIXED_STRATEGIES - 1)
    ]
    more = recombine(problem, incumbent, groups, limits)
    return proven(joined(problem, incumbent, more), bounds, table.start), bounds


def _with_between(problem: Problem, known: Frontier, new: Int32Array) -> Frontier:
    """Add strategies between some new ones and their neighbours on the hull to a frontier."""
    hull = hull_of(known.memory, known.time)
    rows = {row.tobytes() for row in new}
    is_new = [known.strategies[corner].tobytes() in rows for corner in hull]
    ways = [
        between(known.strategies[[one, other]])
        for (one, first), (other, last) in pairwise(zip(hull, is_new, strict=True))
        if first or last
    ]
    return joined(problem, known, np.concatenate(ways)) if ways else known


def _proven_by_lines(known: Frontier, bounds: Sequence[Bounds]) -> Frontier:
    """Add the gap that least costs prove to a frontier; exact least costs prove nearly all of
    it."""
    least = [each.least for each in bounds]
    within = proven_gap_of_lines([each.weights for each in bounds], least, known)
    return replace(known, within=narrowest(within, known.within))


def _least(
    table: WeightedBounds, incumbent: Frontier, bounds: Bounds
) -> tuple[Bounds, Int32Array, float]:
    """Return higher bounds for the same weights, a strategy of least cost, and the additions spent.

    The search covers configurations whose bound is at most a known strategy's cost.
    """
    best, cost = incumbent.least(bounds.weights)
    left = bounds.min_marginals <= cost * (1 + ROUNDING)
    left[table.start[:-1] + incumbent.strategies[best]] = True  # but for roundings, by its cost
    elimination = weighted_elimination(table.graph, alive=left)
    assert elimination is not None  # as of the whole problem
    least, strategy, additions = elimination.least(*bounds.weights)
    min_marginals = np.maximum(bounds.min_marginals, least)
    better = replace(bounds, least=max(bounds.least, least), min_marginals=min_marginals)
    return better, strategy, additions
