"""Finding the cost frontier of a computation graph: plain integers in, frontiers out."""

from __future__ import annotations

from tensoropt.problem.model import Edge, Node, Problem
from tensoropt.search.baselines.brute_force import brute_force
from tensoropt.search.find import frontier_tracking
from tensoropt.search.pareto.frontier import Frontier, FrontierPoint

__all__ = [
    "Edge",
    "Frontier",
    "FrontierPoint",
    "Node",
    "Problem",
    "brute_force",
    "frontier_tracking",
]
