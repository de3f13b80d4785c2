"""OptCNN (and FlexFlow): the fastest strategy, without regard to memory."""

from __future__ import annotations

import numpy as np

from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.least_time import least_time
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["solve"]


def solve(problem: GraphProblem, limits: SearchLimits = DEFAULT_LIMITS) -> Frontier:
    """The strategy with the least time of all (paper, sections 2.3 and 5.1; Jia et al., ICML 2018).

    OptCNN simplifies the graph by node and edge elimination and tries all strategies of the rest.
    Frontier tracking with one objective does the same, with further eliminations where those two
    end.
    """
    every = [np.arange(node.configurations) for node in problem.problem.nodes]
    return least_time(problem.problem, every, limits)
