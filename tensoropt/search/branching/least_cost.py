"""The strategy of least weighted cost, and bounds that prove it.

Bounds of all configurations are loose after few sweeps, but they say which configurations are in no
strategy that costs less than a known one. Of those that are left, few, the next sweeps are quick
and go on from the same messages; and so on, until bounds meet the cost.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensoropt.arrays import Float64Array, Int32Array, offsets_of
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import Restriction, restriction
from tensoropt.search.bounds.message_passing import ROUNDING, Bounds, WeightedBounds
from tensoropt.search.pareto.region import Weights
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods

__all__ = ["least_cost", "weighted_cost"]

# Bounds have met a strategy that costs at most this share more.
_MET = 1e-6
# While bounds leave more than this share of the configurations, all are swept again, at most so
# often: many edges have one table then, which stays in the caches.
_FEW, _MOST_AGAIN, _SWEEPS_AGAIN = 0.1, 3, 4
# Sweeps over what is left, fewer configurations each time.
_SWEEPS = (4, 8, 16)


def least_cost(
    problem: Problem, table: WeightedBounds, bounds: Bounds, known: Int32Array, cost: float
) -> tuple[Bounds, Int32Array]:
    """A strategy of least cost for the weights of some bounds, and bounds as high as its cost, as
    far as message passing proves it.

    Args:
        problem: with costs that are not negative.
        table: the same in flat arrays.
        bounds: with their messages.
        known: int32[nodes], a strategy.
        cost: its weighted cost.
    """
    if cost <= bounds.least * (1 + _MET):
        return bounds, known
    for _ in range(_MOST_AGAIN):
        if (bounds.min_marginals <= cost).sum() <= _FEW * bounds.min_marginals.size:
            break
        (again,) = table.all_bounds([bounds.weights], _SWEEPS_AGAIN, [bounds.messages])
        bounds = replace(
            again,
            least=max(again.least, bounds.least),
            min_marginals=np.maximum(again.min_marginals, bounds.min_marginals),
        )
    kept = [np.arange(node.configurations) for node in problem.nodes]
    closer, min_marginals = bounds, bounds.min_marginals.copy()
    for sweeps in _SWEEPS:
        start = offsets_of([own.size for own in kept])
        left = [
            np.flatnonzero(own <= cost * (1 + ROUNDING))
            for own in np.split(closer.min_marginals, start[1:-1])
        ]
        if not all(own.size for own in left):
            break  # every strategy costs as much
        kept = [own[each] for own, each in zip(kept, left, strict=True)]
        smaller = restriction(problem, left)
        begin = _at_slots(closer.messages, problem, smaller)
        problem = smaller.problem
        smaller_table = WeightedBounds(problem)
        (closer,) = smaller_table.all_bounds([bounds.weights], sweeps, [begin])
        # A strategy with another configuration costs more than the known one.
        places = np.concatenate(
            [first + own for first, own in zip(table.start, kept, strict=False)]
        )
        own_bounds = np.minimum(closer.min_marginals, cost)
        min_marginals[places] = np.maximum(min_marginals[places], own_bounds)
        chosen = Neighbourhoods(problem, smaller_table).near_bounds(closer)
        now = weighted_cost(problem, bounds.weights, chosen)
        if now < cost:
            cost = now
            known = np.array([own[at] for own, at in zip(kept, chosen, strict=True)], np.int32)
        if cost <= closer.least * (1 + _MET):
            break
    least = max(bounds.least, min(closer.least, cost))
    return replace(bounds, least=least, min_marginals=np.maximum(min_marginals, least)), known


def weighted_cost(problem: Problem, weights: Weights, strategy: Int32Array) -> float:
    """What a strategy costs for weights of a nanosecond and of a byte."""
    (memory,), (time,) = problem.costs(strategy[None])
    return float(weights[0] * time + weights[1] * memory)


def _at_slots(messages: Float64Array, problem: Problem, smaller: Restriction) -> Float64Array:
    """The messages to the slots that are left of a problem, in the order of `Bounds.messages`."""
    found = [np.zeros(0)]
    first = 0
    for end in (0, 1):
        for edge, slots in zip(problem.edges, smaller.slots, strict=True):
            found.append(messages[first + slots[end]])
            first += edge.time.shape[end]
    return np.concatenate(found)
