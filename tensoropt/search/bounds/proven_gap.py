"""The proven gap: by how much a strategy can be better than all known ones, at most.

A strategy that is better by a factor lies below a local upper bound of the search region divided by
it. Lower bounds of its weighted costs that are more than that bound's rule the factor out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from tensoropt.arrays import Float64Array, Int64Array
from tensoropt.search.bounds.message_passing import ROUNDING, Bounds
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.region import SearchRegion, Weights

__all__ = ["gaps_of_lines", "narrowest", "proven_gap", "proven_gap_of_lines"]

# Local upper bounds that are compared with every configuration; of more, neighbours are taken
# together, which may state a wider gap than least costs do of each by itself.
_MOST_CORNERS = 512
# A factor beyond it is no statement.
_FARTHEST = 1e6


def proven_gap(bounds: Sequence[Bounds], incumbent: Frontier, start: Int64Array) -> float | None:
    """The gap by bounds on configurations: every strategy has one of each node, so that it is at
    most what the node's least restrictive configuration allows; of all nodes the least counts.

    Args:
        bounds: for some weights.
        incumbent: the known strategies.
        start: int64[nodes + 1], where each node's configurations are in the bounds.

    Returns:
        The share; None where none is proven, as where least costs are 0.
    """
    weights = [each.weights for each in bounds]
    whole = SearchRegion.below(incumbent.memory, incumbent.time, less=0)
    region = whole.coarse(_MOST_CORNERS)
    limits = region.limits(weights) * (1.0 + ROUNDING)
    lines = np.array([each.min_marginals for each in bounds])
    by_nodes = _share(_most_better(np.ascontiguousarray(lines.T), limits, start) - 1.0)
    if region is whole:
        return by_nodes
    least = [each.least for each in bounds]
    return narrowest(by_nodes, proven_gap_of_lines(weights, least, incumbent))


def narrowest(*gaps: float | None) -> float | None:
    """The least of some proven gaps, of which None proves nothing."""
    return min((gap for gap in gaps if gap is not None), default=None)


def proven_gap_of_lines(
    weights: Sequence[Weights], least: Sequence[float] | Float64Array, incumbent: Frontier
) -> float | None:
    """The gap by the least weighted costs of all strategies, for some weights."""
    _, share = gaps_of_lines(weights, least, incumbent)
    return _share(float(share.max()))


def gaps_of_lines(
    weights: Sequence[Weights], least: Sequence[float] | Float64Array, incumbent: Frontier
) -> tuple[SearchRegion, Float64Array]:
    """By how much a strategy below each local upper bound can be better than it, at most.

    Returns:
        The region of the known strategies, and float64[local upper bounds].
    """
    region = SearchRegion.below(incumbent.memory, incumbent.time, less=0)
    limits = region.limits(weights) * (1.0 + ROUNDING)
    lines = np.asarray(least, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.where(lines > 0, limits / lines, np.where(limits <= lines, 1.0, np.inf))
    shares: Float64Array = factors.min(axis=1) - 1.0
    return region, shares


def _share(share: float) -> float | None:
    return max(0.0, share) if share <= _FARTHEST else None


@numba.njit(cache=True, nogil=True)
def _most_better(lines: Float64Array, limits: Float64Array, start: Int64Array) -> float:
    """The least of all nodes' largest factors by which a configuration's strategy may be better."""
    least = np.inf
    for node in range(start.size - 1):
        first, last = start[node], start[node + 1]
        # Most nodes say no more than others: seen at the configuration that seems the best.
        best, begin = np.inf, first
        for row in range(first, last):
            total = 0.0
            for line in range(lines.shape[1]):
                total += lines[row, line] / max(lines[first, line], 1.0)
            if total < best:
                best, begin = total, row
        most = _factor(lines[begin], limits, 0.0)
        for row in range(first, last):
            if most >= least:
                break
            most = _factor(lines[row], limits, most)
        least = min(least, most)
    return least


@numba.njit(cache=True, nogil=True)
def _factor(line: Float64Array, limits: Float64Array, most: float) -> float:
    """The largest factor by which some row of ``limits`` is at least ``line`` throughout; or
    ``most``, if that is more."""
    for corner in range(limits.shape[0]):
        factor = np.inf
        for number in range(line.size):
            # What is not positive limits nothing, as no row is negative.
            if line[number] > 0:
                factor = min(factor, limits[corner, number] / line[number])
            if factor <= most:
                break
        most = max(most, factor)
    return most
