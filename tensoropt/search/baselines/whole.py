"""Every operator whole on every device: the strategy that no operator, gradient or collective
forbids."""

from __future__ import annotations

import numpy as np

from tensoropt.parallel.assignments import NO_INDEX
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.least_time import single_strategy
from tensoropt.search.baselines.nearest import leader_assignments, nearest_option
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["solve"]


def solve(problem: GraphProblem) -> Frontier:
    """Return one strategy: no operator is split where it can be whole, and no variable either."""
    wanted = np.full(len(problem.mesh.axes), NO_INDEX, dtype=np.int8)
    strategy = [
        nearest_option(leader_assignments(problem, number), wanted)
        for number in range(len(problem.choices))
    ]
    return single_strategy(problem.problem, strategy)
