"""The fastest strategy of a problem, whatever its memory: what solvers of one objective find."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import restrict, whole_strategies
from tensoropt.search.bounds.message_passing import ROUNDING, Bounds, WeightedBounds
from tensoropt.search.branching.least_cost import least_cost
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.scalar.bucket_elimination import fastest
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods
from tensoropt.search.scalar.series_parallel import weighted_elimination

__all__ = ["least_time", "single_strategy"]

_SWEEPS = 24


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
    row = np.asarray(strategy, dtype=np.int32)[None]
    return Frontier(*problem.costs(row), row, exact=exact, within=within)


def least_time(
    problem: Problem, kept: Sequence[Int64Array], limits: SearchLimits = DEFAULT_LIMITS
) -> Frontier:
    """The one strategy of least time; which, of several equally fast, its memory does not say.

    Bucket elimination, as OptCNN's. Where its tables would be large, a fast strategy is found by
    large neighbourhood search, and what bounds prove to be slower is left out (reduced-cost
    fixing), with all that the frontier's search does for a pair of weights (`least_cost`). Where
    tables still would be too large, a series-parallel graph's least is found by products between
    slots; else that strategy is the answer: not exact, and by which share another may be faster is
    known.

    Args:
        problem: with times that are not negative.
        kept: of every node, the configurations to choose from.
        limits: of tables.
    """
    part = restrict(problem, kept)
    chosen, exact, gap = fastest(part, limits.bucket_cells), True, None
    if chosen is None:
        table = WeightedBounds(part)
        bounds, near = table.bounds(1.0, 0.0, _SWEEPS), Neighbourhoods(table)
        chosen = near.near_bounds(bounds)
        not_slower = _fixed(part, table, bounds, chosen)
        left = restrict(part, not_slower)
        best = fastest(left, limits.bucket_cells)
        if best is None:
            _, time = part.cost(chosen.tolist())
            bounds, chosen, _ = least_cost(table, near, bounds, chosen, float(time))
            not_slower = _fixed(part, table, bounds, chosen)
            left = restrict(part, not_slower)
            best = fastest(left, limits.bucket_cells)
        exact, least = best is not None, bounds.least
        if best is None:
            elimination = weighted_elimination(FlatGraph.of(left), limits.closing_additions)
            if elimination is not None:
                least, best, _ = elimination.least(1.0, 0.0)
        if best is not None:
            chosen = whole_strategies(not_slower, best[None])[0]
        if not exact and least > 0:
            _, time = part.cost(chosen.tolist())
            gap = max(0.0, time / least - 1)
    strategy = whole_strategies(kept, chosen[None])[0]
    return single_strategy(problem, strategy, exact=exact, within=gap)


def _fixed(
    part: Problem, table: WeightedBounds, bounds: Bounds, chosen: Int32Array
) -> list[Int64Array]:
    """The configurations of every node that no bound proves to be slower than a strategy."""
    _, time = part.cost(chosen.tolist())
    left = bounds.min_marginals <= time * (1 + ROUNDING)
    left[table.start[:-1] + chosen] = True  # bounded by its time, but for roundings
    return [np.flatnonzero(own) for own in np.split(left, table.start[1:-1])]
