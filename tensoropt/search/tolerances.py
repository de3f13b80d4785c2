"""Tolerances of the search: the shares at which two costs, slopes or gaps count as one.

They decide how soon a step ends, never whether a result is right: a frontier states the gap that
was proven. Where a value names no experiment, none was made for the value alone.
"""

from __future__ import annotations

__all__ = [
    "ALIKE_EDGES",
    "APART",
    "AS_COSTLY",
    "BETTER_MIXTURE",
    "DIVIDED_GAP",
    "EXACT_EDGE",
    "FEW_CELLS",
    "LARGEST_MESSAGE",
    "LEAST_GAIN",
    "LEAST_SHARE",
    "LIKE_SUBGRAPHS",
    "MIXTURE_GRAIN",
    "NEAR_BOUND",
    "REBUILT_PART",
    "REPEATED_SEARCH",
    "ROUNDING",
    "SAME_COST",
    "SAME_SLOPE",
    "STAGE_REACHED",
    "STALLED_GAP",
    "WIDEST_GAP",
    "ZERO_WEIGHT",
]

ROUNDING = 1e-11
"""Share of a strategy's weighted cost by which a bound may be too high because of rounding.

A sweep adds some ten numbers a node to a sum, and each addition rounds by at most 2**-53. For a
thousand nodes and fifty sweeps that is less than a tenth of this share, as long as no message is
larger than `LARGEST_MESSAGE` allows.
"""
LARGEST_MESSAGE = 500.0
"""Factor of the least cost. Bounds begin without earlier messages that are larger."""
ZERO_WEIGHT = 1e-9
"""Nanoseconds per byte that are added to two weights before their ratio is taken."""
WIDEST_GAP = 1e6
"""Share. Gaps above it are reported as unbounded."""

SAME_COST = 1e-6
"""Share of the cost. A bound this near to a strategy's cost proves the strategy."""
SAME_SLOPE = 1e-6
"""Share. Two slopes with a smaller difference are one."""
LEAST_GAIN = 1e-4
"""Share of the cost. A neighbourhood search ends when a round gains less."""
NEAR_BOUND = 0.02
"""Share of epsilon. Bounds this near to a strategy are not raised further."""
EXACT_EDGE = 0.1
"""Share of epsilon. An edge of a hull this near to the bound of its slope is searched last."""

BETTER_MIXTURE = 0.25
"""Share of epsilon by which a mixture has to better the known points."""
MIXTURE_GRAIN = 0.1
"""Share of that difference, in time, by which points of a table of mixtures are apart."""

STAGE_REACHED = 1.5
"""Factor of a stage's gap at which the next stage may begin; the last stage has to be reached."""
STALLED_GAP = 0.9
"""Factor. A stage whose gap stays above this share of an earlier gap has stalled."""
DIVIDED_GAP = 2.0
"""Factor of the closing gap. If the whole problem's gap is wider, no subproblem is divided: the
closing gap would not be reached in time."""
REBUILT_PART = 0.7
"""Share of the configurations. A subproblem with fewer remaining is built anew."""
REPEATED_SEARCH = 0.9
"""Share of the configurations. An exact search that failed is repeated when fewer remain."""
APART = 1.1
"""Factor between the slopes of weights that are bounded anew in a subproblem. Experts on 8 devices
are within 0.1 % with 1.05, 1.1 and 1.2, but stay at 0.5 % with 1.5 or without."""
FEW_CELLS = 0.25
"""Share of the cells. Interpolated bounds that leave fewer are used in place of new ones."""
AS_COSTLY = 0.98
"""Share of the highest cost of a division above which nodes cost the same."""
LEAST_SHARE = 1e-6
"""Least share that a choice is said to cost, so that products of two costs are not 0."""

ALIKE_EDGES = 0.55
"""Share of the edges with tables of their own, up to which the subgraphs of a graph are alike."""
LIKE_SUBGRAPHS = 2 / 3
"""Share of the points. If bounds leave more, like subgraphs are eliminated once, without bounds."""
