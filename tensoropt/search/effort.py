"""Effort of the search: how much each step does, and its price in additions.

The unit of a price is an *addition*: one sum of a cell with a cost in a sweep of message passing
(`tensoropt.search.limits`). Like the limits, the values were set with the four models of
``benchmarks.search`` on 16 devices; an experiment of a value's own is named where one was made.
"""

from __future__ import annotations

__all__ = [
    "BLOCK_PRICE",
    "BOUNDS_AGAIN",
    "CELL_ROUNDING_PRICE",
    "CONFIGURATIONS_PER_WEIGHT",
    "CORNER_PRICE",
    "EXACT_SLOPES",
    "EXACT_SWEEPS",
    "FIRST_SWEEPS",
    "FIRST_WEIGHTS",
    "INHERITED_MESSAGES",
    "LEAST_COST_SWEEPS",
    "LEAST_TIME_SWEEPS",
    "MERGED",
    "MESSAGE_PRICE",
    "MIXED_EDGES",
    "NEAREST",
    "NEIGHBOURHOOD_ROUNDS",
    "NODES_PER_WEIGHT",
    "PAIR_PRICE",
    "PROMISING",
    "PRUNED_AGAIN",
    "PRUNING_SWEEPS",
    "PRUNING_WEIGHTS",
    "RANGE_PRODUCTS",
    "SURVIVOR_PRICE",
    "TYPICAL_CHOICES",
    "WEIGHTS_AT_ONCE",
    "WEIGHT_SWEEPS",
    "WORTH_A_THREAD",
]

# Prices, in additions of a sweep.
WORTH_A_THREAD = 1e7
"""Additions of a thread's work below which starting the thread takes longer."""
CELL_ROUNDING_PRICE = 10
"""Price of rounding a cell of a table to whole units."""
MERGED = 15
"""Price of an addition of points in a merge."""
RANGE_PRODUCTS = 8
"""Products that are examined for each point of two long ranges in a merge."""
BLOCK_PRICE, SURVIVOR_PRICE = 64, 40
"""Prices of a pair of ranges and of a surviving point, in products of a merge."""
PAIR_PRICE = 16
"""Price of adding two cells of parallel edges, in products of a merge."""
MESSAGE_PRICE = 1e4
"""Price of messages along an edge and from a node, besides their points, in products of a merge."""
NODES_PER_WEIGHT, CONFIGURATIONS_PER_WEIGHT = 20, 5_000
"""Nodes of an exact search, and configurations of a bound, that take as long as
`SearchLimits.line_additions`."""
CORNER_PRICE = 2
"""Price of the gap at a corner for each configuration."""
PRUNED_AGAIN = 6
"""A graph is pruned again when eliminations took this many times the price of pruning. Between 4
and 10 searches of the zoo take as long; without it up to twice as long."""

# Weights and sweeps.
WEIGHTS_AT_ONCE = 8
"""Most weights in one pass over all tables: their part of an edge fits the first caches."""
FIRST_WEIGHTS, FIRST_SWEEPS = 7, 2
"""Weights and sweeps of the bounds that say which states of a simplified graph are promising."""
PRUNING_WEIGHTS, PRUNING_SWEEPS = 16, 8
"""Weights and sweeps of the bounds that prune a simplified graph."""
EXACT_SLOPES, EXACT_SWEEPS = (1 / 3, 1.0, 3.0), 8
"""Slopes, as factors of the worth of a byte, and sweeps before an exact search of a subproblem."""
WEIGHT_SWEEPS = 4
"""Sweeps for new weights in a branch and bound; they begin with messages of near weights."""
LEAST_COST_SWEEPS = (4, 8, 16)
"""Sweeps over the remaining configurations, fewer configurations each time."""
LEAST_TIME_SWEEPS = 24
"""Sweeps of the bound on the least time."""
BOUNDS_AGAIN = 4
"""Weights that are bounded anew in a subproblem; four times as many bounds are inherited."""
INHERITED_MESSAGES = 4
"""Bounds of a larger subproblem whose messages the smaller one's bounds begin with."""

# Strategies.
MIXED_EDGES = 4
"""Edges of a hull whose ends are mixed together."""
PROMISING, TYPICAL_CHOICES = 8, 16
"""Configurations of a node with the least bounds, and of a neighbourhood as the order of
elimination expects them."""
NEAREST = (6, 3, 1)
"""Configurations of a node that are added for each neighbour; the next if tables are too large."""
NEIGHBOURHOOD_ROUNDS = 5
"""Most rounds of a neighbourhood search."""
