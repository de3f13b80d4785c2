"""Effort of the search: how much each step does, and its price in additions.

The unit of a price is an *addition*: one sum of a cell with a cost in a sweep of message passing
(`tensoropt.search.limits`). Like the limits, the values were set with the four models of
``benchmarks.search`` on 16 devices; an experiment of a value's own is named where one was made.
"""

from __future__ import annotations

__all__ = [
    "EXACT_SLOPES",
    "LINES_AT_ONCE",
    "LISTED_PRICE",
    "MERGED",
    "MESSAGE_PRICE",
    "NEAREST",
    "NEIGHBOURHOOD_ROUNDS",
    "PROMISING",
    "PRUNED_AGAIN",
    "RANGE_PRODUCTS",
    "RECOMBINED",
    "SWEEPS",
    "WEIGHTS",
    "WORTH_A_THREAD",
]

# Prices.
WORTH_A_THREAD = 1e7
"""Additions of a thread's work below which starting the thread takes longer."""
MERGED = 15
"""Price, in additions, of a step of a merge, or of rounding a cell."""
RANGE_PRODUCTS = 8
"""Products that are examined for each point of two long ranges in a merge."""
LISTED_PRICE = 40
"""Price, in products of a merge, of what is listed: a pair of ranges, a surviving point, a pair of
cells of parallel edges."""
MESSAGE_PRICE = 1e4
"""Price of messages along an edge and from a node, besides their points, in products of a merge."""
PRUNED_AGAIN = 6
"""A graph is pruned again when eliminations took this many times the price of pruning. Between 4
and 10 searches of the zoo take as long; without it up to twice as long."""

# Weights and sweeps.
WEIGHTS = 8
"""Weights in one pass over all tables: their part of an edge fits the first caches. An exact search
has about as many for its first bounds, and twice as many to prune."""
SWEEPS = 4
"""Sweeps of new bounds. Twice as many prune, and remaining configurations get up to four times as
many. With two, a decoder takes 3.5 s in place of 2.2."""
EXACT_SLOPES = (1 / 3, 1.0, 3.0)
"""Slopes before an exact search of a subproblem, as factors of the worth of a byte."""
LINES_AT_ONCE = 4
"""Edges of a hull, or weights near a corner, that are handled together; a smaller subproblem
inherits the bounds of four times as many."""

# Strategies.
PROMISING = 8
"""Configurations of a node with the least bounds; with neighbours it has about twice as many."""
NEAREST = (6, 3, 1)
"""Configurations of a node that are added for each neighbour; the next if tables are too large."""
NEIGHBOURHOOD_ROUNDS = 5
"""Most rounds of a neighbourhood search."""
RECOMBINED = 32
"""Known strategies, the cheapest for some weights, whose configurations are recombined."""
