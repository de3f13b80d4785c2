"""The eliminations that simplify a graph until it is linear (paper, section 3.2, figure 3).

Edge elimination (equation 5) happens inside ``SearchGraph.connect``, as soon as two edges join
the same nodes.
"""

from __future__ import annotations

from tensoropt.search.elimination.branch import MergedStates, eliminate_branch
from tensoropt.search.elimination.graph import SearchGraph
from tensoropt.search.elimination.heuristic import (
    HEURISTICS,
    Heuristic,
    eliminate_by_choice,
    fold,
)
from tensoropt.search.elimination.memo import Memo
from tensoropt.search.elimination.node import eliminate_node

__all__ = [
    "HEURISTICS",
    "Heuristic",
    "Memo",
    "MergedStates",
    "SearchGraph",
    "eliminate_branch",
    "eliminate_by_choice",
    "eliminate_node",
    "fold",
]
