"""Solvers: frontier tracking and the strategies of other systems, one signature for all.

A solver takes what is planned (a search problem and what its numbers stand for) and returns the
frontier of the strategies that it looks at, with numbers of the problem's options and costs by
equation 3. Those that find one strategy return a frontier of one point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tensoropt.errors import OptionError
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel, mesh_tensorflow, optcnn, tofu, tofu_recursive
from tensoropt.search.baselines.brute_force import brute_force
from tensoropt.search.find import frontier_tracking
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["SOLVERS", "Solver", "solver"]

Solver = Callable[[GraphProblem], Frontier]


def _frontier_tracking(problem: GraphProblem) -> Frontier:
    return frontier_tracking(problem.problem)


def _brute_force(problem: GraphProblem) -> Frontier:
    return brute_force(problem.problem)


SOLVERS: Mapping[str, Solver] = MappingProxyType(
    {
        "ft": _frontier_tracking,
        "data_parallel": data_parallel.solve,
        "optcnn": optcnn.solve,
        "tofu": tofu.solve,
        "tofu_recursive": tofu_recursive.solve,
        "mesh_tensorflow": mesh_tensorflow.solve,
        "brute_force": _brute_force,
    }
)
"""The solvers, by the names that ``find_strategy(algorithm=...)`` knows them by."""


def solver(name: str) -> Solver:
    """The solver of a name.

    Raises:
        OptionError: if there is none; lists them.
    """
    if name in SOLVERS:
        return SOLVERS[name]
    raise OptionError.one_of("an algorithm", name, SOLVERS)
