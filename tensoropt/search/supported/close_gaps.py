"""Close the widest gaps of a known frontier, where a graph is series-parallel.

At the weights where bounds say least of what may be better, the least of all strategies is found
by eliminations (`tensoropt.search.scalar.series_parallel`), among those configurations that bounds
leave for these weights. Then gaps in the hull are filled (`recombination`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import restrict
from tensoropt.search.bounds.message_passing import ROUNDING, Bounds, WeightedBounds, warm_bounds
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.scalar.series_parallel import weighted_elimination
from tensoropt.search.supported.gaps import and_between, wide_runs, widest_gaps, with_found
from tensoropt.search.supported.recombination import relinked
from tensoropt.search.watch import keep, tell, was_interrupted

__all__ = ["closed"]


# Pairs of weights, and how many at a time: on every machine the same, so that the frontier is, too.
_MOST_LINES, _AT_ONCE = 16, 2
# Additions of all eliminations after which no other begins.
_MOST_WORK = 3e10
_SWEEPS = 2
# Strategies of which all mixtures are searched.
_MIXED = 3


def closed(
    problem: Problem,
    table: WeightedBounds,
    known: Frontier,
    bounds: Sequence[Bounds],
    epsilon: float,
) -> Frontier:
    """With the least of all strategies for the weights of the widest gaps, a few at a time, until
    all are proven to be narrower than ``epsilon`` or work is done, and with what is between.

    Args:
        problem: a series-parallel graph's.
        table: the same in flat arrays.
        known: strategies, within some share.
        bounds: by which they are.
        epsilon: more than 0.
    """
    spent = 0
    for number in range(0, _MOST_LINES, _AT_ONCE):
        weights = widest_gaps(known, bounds, _AT_ONCE, epsilon, halved=False)
        if not weights or spent > _MOST_WORK:
            break
        tell("least of all strategies", number, _MOST_LINES)
        least = partial(_least, problem, table.start, known)
        with ThreadPoolExecutor(max_workers=min(len(weights), os.cpu_count() or 1)) as pool:
            found = list(pool.map(least, warm_bounds(table, weights, _SWEEPS, bounds)))
        bounds = [*bounds, *(line for line, _, _ in found)]
        spent += sum(work for _, _, work in found)
        best = np.stack([strategy for _, strategy, _ in found])
        more = and_between(problem, known, best)
        known = with_found(problem, known, more, bounds, table.start)
        keep(known)
        if was_interrupted() or (known.within is not None and known.within <= epsilon):
            return known
    tell("between strategies", 0, 1)
    groups = [
        run[first : first + _MIXED]
        for run in wide_runs(known, bounds, epsilon)
        for first in range(0, len(run) - 1, _MIXED - 1)
    ]
    more = relinked(problem, known, groups)
    return with_found(problem, known, more, bounds, table.start)


def _least(
    problem: Problem, start: Int64Array, known: Frontier, bounds: Bounds
) -> tuple[Bounds, Int32Array, int]:
    """Better bounds for the same weights, a strategy that costs as little, and the additions that
    it took: what has a configuration that is left out costs more than a known strategy."""
    pair = bounds.per_nanosecond, bounds.per_byte
    costs = pair[0] * known.time + pair[1] * known.memory
    best = int(costs.argmin())
    left = bounds.of_configuration <= costs[best] * (1 + ROUNDING)
    left[start[:-1] + known.strategies[best]] = True  # by any bounds, but for roundings
    kept = [np.flatnonzero(own) for own in np.split(left, start[1:-1])]
    elimination = weighted_elimination(restrict(problem, kept))
    assert elimination is not None  # as of the whole problem
    least, chosen = elimination.least(*pair)
    strategy = [own[number] for own, number in zip(kept, chosen, strict=True)]
    of_configuration = np.maximum(bounds.of_configuration, least)
    better = replace(bounds, least=max(bounds.least, least), of_configuration=of_configuration)
    return better, np.array(strategy, dtype=np.int32), elimination.work
