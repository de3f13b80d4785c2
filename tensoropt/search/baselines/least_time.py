"""The fastest strategy of a problem, whatever its memory: what solvers of one objective find."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int64Array
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import restrict
from tensoropt.search.bounds.message_passing import ROUNDING, WeightedBounds
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.scalar.bucket_elimination import least_sum, time_terms
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods, lowest

__all__ = ["least_time", "single_strategy"]

_SWEEPS = 24
_PROMISING = 8  # configurations of each node that the first neighbourhood holds


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
    fixing). Where tables still would be too large, that strategy is the answer: not exact, and by
    which share another may be faster is known.

    Args:
        problem: with times that are not negative.
        kept: of every node, the configurations to choose from.
        limits: of tables.
    """
    numbers = _eliminate(problem, kept, limits.bucket_cells)
    if numbers is not None:
        return single_strategy(problem, numbers)
    part = restrict(problem, kept)
    table = WeightedBounds(part)
    bounds = table.bounds(1.0, 0.0, _SWEEPS)
    each = np.split(bounds.min_marginals, table.start[1:-1])
    promising = lowest(bounds.min_marginals, table.start, _PROMISING)
    first = [int(own.argmin()) for own in each]
    incumbent = Neighbourhoods(part, table).improve((1.0, 0.0), first, promising)
    _, fastest = part.cost(incumbent.tolist())
    not_slower = [
        own[lower <= fastest * (1 + ROUNDING)] for own, lower in zip(kept, each, strict=True)
    ]
    numbers = _eliminate(problem, not_slower, limits.bucket_cells)
    if numbers is not None:
        return single_strategy(problem, numbers)
    gap = fastest / bounds.least - 1 if bounds.least > 0 else None
    strategy = [own[place] for own, place in zip(kept, incumbent, strict=True)]
    return single_strategy(problem, strategy, exact=False, within=gap)


def _eliminate(problem: Problem, kept: Sequence[Int64Array], most_cells: int) -> Int64Array | None:
    """The fastest strategy of the configurations in ``kept``; None if tables are too large."""
    places = least_sum([own.size for own in kept], time_terms(problem, kept), most_cells)
    if places is None:
        return None
    return np.array([own[place] for own, place in zip(kept, places, strict=True)])
