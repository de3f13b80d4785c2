"""The division of a subproblem in two, by the configurations of one node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.arrays import BoolArray, Float64Array
from tensoropt.search.bounds.message_passing import nearest
from tensoropt.search.branching.subproblem import Subproblem
from tensoropt.search.pareto.region import Weights
from tensoropt.search.tolerances import NEARLY, NEGLIGIBLE

__all__ = ["Halves", "at_hub", "by_costs", "sides"]

# Slopes on either side of an edge: the edge's slope times and divided by the first factor. Weights
# of an existing bound within the second factor are used instead.
_STEEPER, _ABOUT = 4.0, 2.0
# Most configurations and fewest neighbours of a hub.
_STATES, _NEIGHBOURS = 3, 4

Halves = tuple[BoolArray, BoolArray]
"""Two masks, bool[configurations]: each has part of one node's configurations, and all of the other
nodes'."""


def at_hub(part: Subproblem) -> Halves | None:
    """Return halves by one configuration of a hub and its other ones, if there is a hub.

    A hub has few configurations and many neighbours. Bounds may take another mixture of its
    configurations for each neighbour. Only a fixed configuration ends that, and leaves a simpler
    graph.
    """
    sizes = np.diff(part.start)
    ends = np.stack([part.graph.ends.source.node, part.graph.ends.target.node])
    pairs = np.unique(np.sort(ends, axis=0), axis=1)
    degrees = np.bincount(pairs.ravel(), minlength=sizes.size)
    degrees[(sizes < 2) | (sizes > _STATES)] = 0
    hub = int(degrees.argmax())
    if degrees[hub] < _NEIGHBOURS:
        return None
    return _halves(part, hub, np.arange(sizes[hub]) == 0)


def sides(part: Subproblem, slope: float) -> list[Weights]:
    """Return weights for strategies on either side of an edge of the hull, less memory first.

    Weights of existing bounds are preferred if their slopes are near.

    Args:
        part: the subproblem to be divided.
        slope: of the edge, nanoseconds per byte.
    """
    own = [each.weights for each in part.own if each.weights[0] == 1]
    weights: list[Weights] = []
    for worth in (_STEEPER * slope, slope / _STEEPER):
        near = [pair for pair in own if worth / _ABOUT <= pair[1] <= worth * _ABOUT]
        weights.append(near[nearest((1.0, worth), near)] if near else (1.0, worth))
    return weights


def by_costs(part: Subproblem, weights: Sequence[Weights]) -> Halves:
    """Divide a node's configurations into those cheaper on either side of an edge of the hull.

    The node is the one with the highest score, see `_costs`. Nodes of like layers cost the same;
    the middle one is taken, so that a chain with one change along it is halved. If no node has two
    halves, the node with most configurations is halved.

    Args:
        part: the subproblem, with bounds for the weights.
        weights: the edge's `sides`.
    """
    costs, takes_low = _costs(part, weights)
    most = costs.max()
    if most < 0:
        sizes = np.diff(part.start)
        node = int(sizes.argmax())
        return _halves(part, node, np.arange(sizes[node]) < sizes[node] // 2)
    costliest = np.flatnonzero(costs >= NEARLY * most)
    node = int(costliest[costliest.size // 2])
    return _halves(part, node, takes_low[part.start[node] : part.start[node + 1]])


def _halves(part: Subproblem, node: int, half: BoolArray) -> Halves:
    """Return the two masks with the given half of a node's configurations, and with the rest."""
    first, last = part.start[node], part.start[node + 1]
    one = np.ones(part.configurations, dtype=np.bool_)
    other = one.copy()
    one[first:last], other[first:last] = half, ~half
    return one, other


def _costs(part: Subproblem, weights: Sequence[Weights]) -> tuple[Float64Array, BoolArray]:
    """Return the score of each node for strategies on both sides of an edge of the hull.

    The score is the product, over both sides, of the increase of the bound if the node may only
    take the other side's half. This is strong branching, with a product as score (Achterberg, Koch
    and Martin, "Branching rules revisited", 2005).

    Returns:
        float64[nodes], -1 for nodes without two halves; bool[configurations], whether each is in
            the half that is cheaper on the side of less memory.
    """
    products = np.full(part.nodes, -1.0)
    known = {each.weights: each for each in part.bounds if each.least > 0}
    if not all(pair in known for pair in weights):
        return products, np.zeros(part.configurations, dtype=np.bool_)
    low, fast = (known[pair].min_marginals / known[pair].least - 1 for pair in weights)
    takes_low = low <= fast
    costs = [
        np.minimum.reduceat(np.where(others, np.inf, own), part.start[:-1])
        for own, others in ((low, takes_low), (fast, ~takes_low))
    ]
    has_halves = np.isfinite(costs).all(axis=0)
    products[has_halves] = np.maximum(costs, NEGLIGIBLE).prod(axis=0)[has_halves]
    return products, takes_low
