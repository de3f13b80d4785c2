"""The share by which a strategy can be better than all known ones, at each corner of the region.

A strategy that no known one equals or beats lies below a corner: a pair of memory and time, both of
which it undercuts. If it undercuts both by a factor, so does its weighted cost. A lower bound of
weighted costs rules out all factors above the corner's cost divided by the bound.

The proven gap of a frontier is the widest gap at a corner.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.search.bounds.message_passing import Bounds
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.region import SearchRegion, Weights
from tensoropt.search.tolerances import NEGLIGIBLE

__all__ = ["by_nodes", "gaps_of_lines", "proven_gap"]


def gaps_of_lines(
    weights: Sequence[Weights], least: Sequence[float], region: SearchRegion
) -> Float64Array:
    """Return float64[corners], the shares by which a strategy can be better than each corner.

    Args:
        weights: some pairs.
        least: for each pair a bound on the weighted cost of every strategy.
        region: that the known strategies leave open.
    """
    limits, bounds = region.limits(weights), np.asarray(least, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.where(bounds > 0, limits / bounds, np.where(limits <= bounds, 1.0, np.inf))
    shares: Float64Array = factors.min(axis=1) - 1.0
    return shares


def by_nodes(
    limits: Float64Array, min_marginals: Float64Array, start: Int64Array, shares: Float64Array
) -> Float64Array:
    """Return float64[corners], the shares that bounds on configurations prove.

    Every strategy has one configuration of each node. A node allows the share of its least
    restrictive configuration, and the node that allows the smallest share decides.

    Args:
        limits: float64[corners, W].
        min_marginals: float64[configurations of all nodes, W], bounds on the strategies with each.
        start: int64[nodes + 1], where each node's configurations begin.
        shares: float64[corners], above 0: the shares that are proven without nodes.
    """
    narrowed = shares.copy()
    _by_nodes(limits, min_marginals, start, narrowed)
    return narrowed


def proven_gap(bounds: Sequence[Bounds], incumbent: Frontier, start: Int64Array) -> float | None:
    """Return the gap that bounds on configurations prove.

    Args:
        bounds: for some weights.
        incumbent: the known strategies.
        start: int64[nodes + 1], where each node's configurations begin.

    Returns:
        The share; None where no gap is proven, as where least costs are 0.
    """
    weights = [each.weights for each in bounds]
    least = [each.least for each in bounds]
    region = SearchRegion.beside(incumbent.memory, incumbent.time)
    shares = gaps_of_lines(weights, least, region)
    wide = shares > 0
    limits = region.take(wide).limits(weights)
    lines = np.ascontiguousarray(np.array([each.min_marginals for each in bounds]).T)
    share = float(by_nodes(limits, lines, start, shares[wide]).max(initial=0.0))
    return share if share <= 1 / NEGLIGIBLE else None


@numba.njit(cache=True, nogil=True)
def _by_nodes(
    limits: Float64Array,
    min_marginals: Float64Array,
    start: Int64Array,
    shares: Float64Array,
) -> None:
    weights = limits.shape[1]
    inverse = np.empty(weights)
    # The configuration of each node that came nearest to the last corner; it often decides at the
    # next corner, too.
    near = start[:-1].copy()
    for corner in range(limits.shape[0]):
        for line in range(weights):
            limit = limits[corner, line]
            inverse[line] = 1.0 / limit if 0.0 < limit < np.inf else 0.0
        # All configurations of some node are at least this near to the corner.
        best = 1.0 / (1.0 + shares[corner])
        for node in range(start.size - 1):
            worst = _nearest(min_marginals[near[node]], inverse, np.inf)
            for row in range(start[node], start[node + 1]):
                if worst <= best:
                    break
                nearest = _nearest(min_marginals[row], inverse, worst)
                if nearest < worst:
                    worst, near[node] = nearest, row
            if worst > best:
                best = worst
                shares[corner] = 1.0 / best - 1.0


@numba.njit(cache=True, nogil=True)
def _nearest(min_marginals: Float64Array, inverse: Float64Array, most: float) -> float:
    """Return how near strategies with a configuration come to a corner, by all lines, at most
    ``most``."""
    nearest = 0.0
    for line in range(inverse.size):
        nearest = max(nearest, min_marginals[line] * inverse[line])
        if nearest >= most:
            return most
    return nearest
