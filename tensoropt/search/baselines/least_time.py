"""The fastest strategy of a problem, whatever its memory: the result of solvers with one
objective."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import restrict, whole_strategies
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds
from tensoropt.search.branching.least_cost import least_cost
from tensoropt.search.effort import SWEEPS
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.scalar.bucket_elimination import fastest
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods
from tensoropt.search.tolerances import ROUNDING

__all__ = ["least_time", "single_strategy"]


def single_strategy(
    problem: Problem, strategy: npt.ArrayLike, *, exact: bool = True, within: float | None = None
) -> Frontier:
    """Return the frontier of one strategy, with its costs by equation 3.

    Args:
        problem: the strategy's problem.
        strategy: a configuration for every node.
        exact: whether it is the optimum of its solver.
        within: the share by which another may be faster at most, None if not known.
    """
    row = np.asarray(strategy, dtype=np.int32)[None]
    return Frontier(*problem.costs(row), row, exact=exact, within=within)


def least_time(
    problem: Problem, kept: Sequence[Int64Array], limits: SearchLimits = DEFAULT_LIMITS
) -> Frontier:
    """Return a strategy of least time; of several, its memory is not specified.

    Bucket elimination, as OptCNN's, finds it. If its tables would be too large, a fast strategy is
    found by large neighbourhood search, and configurations that bounds prove to be slower are
    dropped (reduced-cost fixing), as the frontier's search does for a pair of weights
    (`least_cost`). If tables would still be too large, one more elimination of all configurations
    may take many more additions. Where that is too large, the fast strategy is returned: not exact,
    and with the share by which another may be faster.

    Args:
        problem: with times that are not negative.
        kept: of every node, the configurations to choose from.
        limits: of tables.
    """
    part = restrict(problem, kept)
    chosen, exact, gap = fastest(part, limits.bucket_cells, limits.bucket_cells), True, None
    if chosen is None:
        table = WeightedBounds(part)
        bounds, near = table.bounds(1.0, 0.0, 4 * SWEEPS), Neighbourhoods(table)
        fast = near.near_bounds(bounds)
        chosen = _fastest_left(part, table, bounds, fast, limits)
        if chosen is None:
            _, time = part.cost(fast.tolist())
            bounds, fast, _ = least_cost(table, near, bounds, fast, float(time))
            chosen = _fastest_left(part, table, bounds, fast, limits)
        if chosen is None:
            chosen = fastest(part, limits.bucket_cells, limits.bucket_additions)
        if chosen is None:
            chosen, exact = fast, False
            _, time = part.cost(fast.tolist())
            gap = max(0.0, time / bounds.least - 1) if bounds.least > 0 else None
    strategy = whole_strategies(kept, chosen[None])[0]
    return single_strategy(problem, strategy, exact=exact, within=gap)


def _fastest_left(
    part: Problem, table: WeightedBounds, bounds: Bounds, fast: Int32Array, limits: SearchLimits
) -> Int32Array | None:
    """Return the fastest strategy of the configurations that no bound proves to be slower than a
    strategy; None where tables would be too large."""
    _, time = part.cost(fast.tolist())
    alive = bounds.min_marginals <= time * (1 + ROUNDING)
    alive[table.start[:-1] + fast] = True  # bounded by its time, but for roundings
    left = [np.flatnonzero(own) for own in np.split(alive, table.start[1:-1])]
    best = fastest(restrict(part, left), limits.bucket_cells, limits.bucket_cells)
    return None if best is None else whole_strategies(left, best[None])[0]
