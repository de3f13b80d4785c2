"""Tolerances of the search: the shares at which two costs, slopes or gaps count as one.

They decide how soon a step ends, never whether a result is right: a frontier states the gap that
was proven.
"""

from __future__ import annotations

__all__ = [
    "BETTER_MIXTURE",
    "FEW_CELLS",
    "FINE",
    "LARGEST_MESSAGE",
    "MOST",
    "NEARLY",
    "NEAR_GAP",
    "NEGLIGIBLE",
    "ROUNDING",
]

ROUNDING = 1e-11
"""Share of a strategy's weighted cost by which a bound may be too high because of rounding.

A sweep adds some ten numbers a node to a sum, and each addition rounds by at most 2**-53. For a
thousand nodes and fifty sweeps that is less than a tenth of this share, as long as no message is
larger than `LARGEST_MESSAGE` allows.
"""
LARGEST_MESSAGE = 500.0
"""Factor of the least cost. Bounds begin without earlier messages that are larger."""
NEGLIGIBLE = 1e-6
"""Share. Costs or slopes that differ by less are one; a weight this small hardly decides; a gap
above its inverse is reported as unbounded."""
NEARLY = 0.9
"""Share. A number is nearly as large as another if it is at least this part of it. Slopes and costs
are alike then, and a gap or a count of configurations has not fallen. Experts on 8 devices end
within 0.1 % if slopes are alike from 1/1.05 to 1/1.2, and at 0.5 % if they are from 1/1.5."""
NEAR_GAP = 2.0
"""Factor. A stage ends once its gap is at most this many times the one asked for, and so the next
one begins. From as near to the closing gap, the whole problem is divided to reach it."""
FINE = 0.1
"""Share of epsilon, or of another difference, that a single step may leave open."""
BETTER_MIXTURE = 0.25
"""Share of epsilon by which a mixture has to better the known points."""
MOST = 2 / 3
"""Share. Bounds that leave more than this share of a graph's points hardly help an exact search.
Edges share tables if at most this share of them has tables of its own. With half, experts of 70 to
90 % of the depth on 4 devices take 25 s in place of 2.2."""
FEW_CELLS = 0.25
"""Share of the cells. Interpolated bounds that leave fewer are used in place of new ones."""
