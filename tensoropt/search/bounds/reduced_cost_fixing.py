"""Reduced-cost fixing: configurations that are proven to be in no better strategy are left out.

Bounds for several weights say where strategies with a given configuration lie: above a line for
each weight. Where no local upper bound of the known strategies is above all these lines, no
strategy with this configuration is better than every known one. This is reduced-cost fixing, known
from integer programming, for two objectives.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tensoropt.arrays import BoolArray, Int64Array
from tensoropt.search.bounds.message_passing import Bounds
from tensoropt.search.bounds.pruning_context import BoundSet
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.region import SearchRegion

__all__ = ["best_of", "possible"]


def possible(bounds: Sequence[Bounds], incumbent: Frontier, epsilon: float = 0.0) -> BoolArray:
    """Which configurations may be those of a strategy that is better than all known ones.

    Args:
        bounds: for some weights.
        incumbent: the known strategies.
        epsilon: how much better: no point is within a factor of 1 + epsilon in both costs.

    Returns:
        bool[configurations of all nodes].
    """
    region = SearchRegion.below(incumbent.memory, incumbent.time, epsilon)
    lines = np.array([each.min_marginals for each in bounds])
    return BoundSet([each.weights for each in bounds], region).possible(
        np.ascontiguousarray(lines.T)
    )


def best_of(bounds: Sequence[Bounds], start: Int64Array, count: int) -> list[Int64Array]:
    """For each node the configurations with the lowest bounds for some weight, ascending."""
    kept = []
    for first, last in itertools.pairwise(start):
        lowest = [
            np.argsort(each.min_marginals[first:last], kind="stable")[:count] for each in bounds
        ]
        kept.append(np.unique(np.concatenate(lowest)))
    return kept
