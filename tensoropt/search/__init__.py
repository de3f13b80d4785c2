"""Finding the cost frontier of a computation graph: plain integers in, frontiers out."""

from __future__ import annotations

from tensoropt.search.frontier import Frontier, FrontierPoint
from tensoropt.search.frontier_tracking import frontier_tracking
from tensoropt.search.problem import Edge, Node, Problem
from tensoropt.search.strategies.brute_force import brute_force

__all__ = [
    "Edge",
    "Frontier",
    "FrontierPoint",
    "Node",
    "Problem",
    "brute_force",
    "frontier_tracking",
]
