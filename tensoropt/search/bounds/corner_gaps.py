"""By how much a strategy can be better than all known ones, at each corner of the search region.

A strategy that no known one is as good as lies below a corner: a pair of memory and time, both of
which it undercuts. If it undercuts both by a factor, so does its weighted cost. A lower bound of
weighted costs rules out all factors above the corner's cost divided by the bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.search.bounds.message_passing import ROUNDING, Bounds
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.region import Weights

__all__ = [
    "WIDEST_GAP",
    "Corners",
    "by_lines",
    "by_nodes",
    "corners_of",
    "gaps_of_lines",
    "limits_of",
    "narrowest",
    "proven_gap",
    "proven_gap_of_lines",
]

WIDEST_GAP = 1e6
"""Share. Gaps above it are reported as unbounded."""

Corners = tuple[Float64Array, Float64Array]
"""Memory and time of local upper bounds, infinite where they do not limit."""


def corners_of(memory: Int64Array, time: Int64Array) -> Corners:
    """The corners of the region that the points of a frontier leave open.

    Args:
        memory, time: int64[points], along the frontier.

    Returns:
        float64[points + 1] each; see `tensoropt.search.pareto.region`.
    """
    return (
        np.append(memory.astype(np.float64), np.inf),
        np.insert(time.astype(np.float64), 0, np.inf),
    )


def limits_of(corners: Corners, weights: Sequence[Weights]) -> Float64Array:
    """float64[corners, weights], what strategies below each corner cost at most."""
    memory, time = corners
    pairs = np.array(weights, dtype=np.float64).reshape(-1, 2)
    with np.errstate(invalid="ignore"):  # 0 times infinity
        of_time = np.where(pairs[:, 0] > 0, np.multiply.outer(time, pairs[:, 0]), 0.0)
        of_memory = np.where(pairs[:, 1] > 0, np.multiply.outer(memory, pairs[:, 1]), 0.0)
    found: Float64Array = (of_time + of_memory) * (1.0 + ROUNDING)
    return found


def by_lines(limits: Float64Array, least: Float64Array) -> Float64Array:
    """float64[corners], the shares by which a strategy can be better than each, at most.

    Args:
        limits: float64[corners, W].
        least: float64[W], below the weighted costs of all strategies.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.where(least > 0, limits / least, np.where(limits <= least, 1.0, np.inf))
    found: Float64Array = factors.min(axis=1) - 1.0
    return found


def by_nodes(
    limits: Float64Array, min_marginals: Float64Array, start: Int64Array, shares: Float64Array
) -> Float64Array:
    """The shares that bounds on configurations prove.

    Every strategy has one configuration of each node. So a node allows what its least restrictive
    configuration allows, and the node that allows least decides.

    Args:
        limits: float64[corners, W].
        min_marginals: float64[configurations of all nodes, W], bounds on the strategies with each.
        start: int64[nodes + 1], where each node's configurations are.
        shares: float64[corners], above 0: what is proven without nodes.

    Returns:
        float64[corners], shares.
    """
    found = shares.copy()
    _by_nodes(limits, min_marginals, start, found)
    return found


def proven_gap(bounds: Sequence[Bounds], incumbent: Frontier, start: Int64Array) -> float | None:
    """The gap by bounds on configurations, of which every strategy has one of each node.

    Args:
        bounds: for some weights.
        incumbent: the known strategies.
        start: int64[nodes + 1], where each node's configurations are in the bounds.

    Returns:
        The share; None where none is proven, as where least costs are 0.
    """
    weights = [each.weights for each in bounds]
    corners, shares = gaps_of_lines(weights, [each.least for each in bounds], incumbent)
    wide = shares > 0
    limits = limits_of((corners[0][wide], corners[1][wide]), weights)
    lines = np.ascontiguousarray(np.array([each.min_marginals for each in bounds]).T)
    return _widest(by_nodes(limits, lines, start, shares[wide]))


def narrowest(*gaps: float | None) -> float | None:
    """The least of some proven gaps, of which None proves nothing."""
    return min((gap for gap in gaps if gap is not None), default=None)


def proven_gap_of_lines(
    weights: Sequence[Weights], least: Sequence[float] | Float64Array, incumbent: Frontier
) -> float | None:
    """The gap by the least weighted costs of all strategies, for some weights."""
    _, shares = gaps_of_lines(weights, least, incumbent)
    return _widest(shares)


def gaps_of_lines(
    weights: Sequence[Weights], least: Sequence[float] | Float64Array, incumbent: Frontier
) -> tuple[Corners, Float64Array]:
    """The corners of the known strategies' search region, and float64[corners], the gaps there."""
    corners = corners_of(incumbent.memory, incumbent.time)
    limits = limits_of(corners, weights)
    return corners, by_lines(limits, np.asarray(least, dtype=np.float64))


def _widest(shares: Float64Array) -> float | None:
    share = float(shares.max(initial=0.0))
    return share if share <= WIDEST_GAP else None


@numba.njit(cache=True, nogil=True)
def _by_nodes(
    limits: Float64Array,
    min_marginals: Float64Array,
    start: Int64Array,
    shares: Float64Array,
) -> None:
    weights = limits.shape[1]
    inverse = np.empty(weights)
    # Each node's configuration that came nearest to the corner before; at the next it mostly says
    # that the node allows as much as others.
    near = start[:-1].copy()
    for corner in range(limits.shape[0]):
        for line in range(weights):
            limit = limits[corner, line]
            inverse[line] = 1.0 / limit if 0.0 < limit < np.inf else 0.0
        # How near to the corner all configurations of some node must come.
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
    """How near to a corner strategies with a configuration come, by all lines; or ``most``, if that
    is less."""
    nearest = 0.0
    for line in range(inverse.size):
        nearest = max(nearest, min_marginals[line] * inverse[line])
        if nearest >= most:
            return most
    return nearest
