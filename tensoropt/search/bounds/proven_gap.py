"""The proven gap of a frontier: by how much a strategy can be better than all known ones, at most.

It is the widest gap at a corner of the search region, see `corner_gaps`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.search.bounds.corner_gaps import Corners, by_lines, by_nodes, corners_of, limits_of
from tensoropt.search.bounds.message_passing import Bounds
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.region import Weights

__all__ = ["WIDEST_GAP", "gaps_of_lines", "narrowest", "proven_gap", "proven_gap_of_lines"]

WIDEST_GAP = 1e6
"""Share. Gaps above it are reported as unbounded."""


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
