"""A strategy of least weighted cost, and bounds that prove it.

After few sweeps bounds of all configurations are loose, but they say which configurations are in no
strategy cheaper than a known one. The next sweeps go over the few remaining ones only and begin
with the same messages, and so on, until a bound meets the cost, or hardly rises.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensoropt.arrays import Int32Array
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds
from tensoropt.search.bounds.passes import sweep_additions
from tensoropt.search.effort import SWEEPS
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods
from tensoropt.search.tolerances import FINE, NEGLIGIBLE, ROUNDING

__all__ = ["least_cost"]


def least_cost(
    table: WeightedBounds,
    near: Neighbourhoods,
    bounds: Bounds,
    known: Int32Array,
    cost: float,
    enough: float = 0.0,
    slack: float = 0.0,
) -> tuple[Bounds, Int32Array, float]:
    """Return bounds as high as the least cost, a strategy of this cost, and the additions spent.

    The bounds reach the least cost as far as message passing proves it.

    Args:
        table: of a problem with costs that are not negative.
        near: the neighbourhoods of its strategies.
        bounds: with their messages.
        known: int32[nodes], a strategy.
        cost: its weighted cost.
        enough: share. Bounds are not raised once the strategy costs at most this share more.
        slack: share. Configurations within this share of the least cost are swept at least once.
    """
    met = max(NEGLIGIBLE, enough)
    if cost > bounds.least * (1 + met):
        chosen = near.near_bounds(bounds)
        now = near.cost(bounds.weights, chosen)
        if now < cost:
            known, cost = chosen, now
    if cost <= bounds.least * (1 + met):
        return bounds, known, 0.0
    spent = 0.0
    closer, min_marginals = bounds, bounds.min_marginals.copy()
    first = table.start[:-1]
    places = np.arange(min_marginals.size)
    limit, height = cost * (1 + max(slack, ROUNDING)), bounds.least
    for sweeps in (SWEEPS, 2 * SWEEPS, 4 * SWEEPS):
        alive = closer.min_marginals <= limit
        if not np.logical_or.reduceat(alive, table.start[:-1]).all():
            break  # every strategy costs as much
        table, left = table.fewer(bounds.weights, alive)
        places = places[alive]
        spent += sweep_additions(sweeps, table.cells)
        (closer,) = table.all_bounds([bounds.weights], sweeps, [closer.messages[left]])
        # A strategy with a dropped configuration costs more than this limit.
        own_bounds = np.minimum(closer.min_marginals, limit)
        min_marginals[places] = np.maximum(min_marginals[places], own_bounds)
        near = near.of(table)
        chosen = near.near_bounds(closer)
        now = near.cost(bounds.weights, chosen)
        if now < cost:
            known, cost = (places[table.start[:-1] + chosen] - first).astype(np.int32), now
        rise, height = closer.least - height, closer.least
        if cost <= height * (1 + met) or rise < FINE * (cost - height):
            break
        limit = cost * (1 + ROUNDING)
    least = max(bounds.least, min(closer.least, cost))
    return (
        replace(bounds, least=least, min_marginals=np.maximum(min_marginals, least)),
        known,
        spent,
    )
