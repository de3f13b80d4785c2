"""The weights of time and memory for which bounds and strategies are computed next."""

from __future__ import annotations

import numpy as np

from tensoropt.problem.model import Problem
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.hull import hull_slopes
from tensoropt.search.pareto.region import Weights

__all__ = ["first_weights"]

# Without a known frontier, weights of a byte reach from its worth divided by this to its worth
# times this.
_SPREAD = 1e3


def first_weights(problem: Problem, incumbent: Frontier | None, count: int) -> list[Weights]:
    """Return at most ``count`` pairs of weights: time alone, memory alone, and pairs between.

    Without a known frontier the pairs are spread around the worth of a byte. Otherwise they are
    slopes of its convex hull, whose corners are nearest to them.
    """
    if incumbent is None or len(incumbent) < 3:
        between = problem.byte_worth * np.geomspace(1 / _SPREAD, _SPREAD, count - 2)
    else:
        slopes = hull_slopes(incumbent.memory, incumbent.time)
        places = np.linspace(0, slopes.size - 1, min(count - 2, slopes.size)).astype(np.int64)
        between = slopes[np.unique(places)]
    return [(1.0, 0.0), *((1.0, float(slope)) for slope in between), (0.0, 1.0)]
