"""Solvers by the names that ``find_strategy(algorithm=...)`` takes.

Frontier tracking and data parallelism are part of the package. Other systems' strategies and
enumeration serve comparisons: they are in the repository beside the package, and are found where
Python can import them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tensoropt.errors import OptionError
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel
from tensoropt.search.find import find
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["REPRODUCED", "SOLVERS", "GraphSolver", "baseline_solver", "solver"]

REPRODUCED = ("optcnn", "tofu", "tofu_recursive", "mesh_tensorflow", "brute_force")
"""Names of the solvers that only the repository has."""
_REPRODUCTION = "reproduction.baselines.solvers"
"""The module of the repository with these solvers: a mapping ``SOLVERS``, by name."""


@dataclass(frozen=True, slots=True)
class GraphSolver:
    """A solver of a graph's problem. It may read the graph as well as its costs."""

    solve: Callable[[GraphProblem, float, SearchLimits], Outcome]

    def __call__(
        self, problem: GraphProblem, epsilon: float = 0.0, limits: SearchLimits = DEFAULT_LIMITS
    ) -> Outcome:
        """Return the frontier of the strategies that the solver considers; it may be one
        strategy."""
        return self.solve(problem, epsilon, limits)


def baseline_solver(strategies: Callable[[GraphProblem, SearchLimits], Frontier]) -> GraphSolver:
    """Make a solver that finds the same strategies for every epsilon."""
    return GraphSolver(lambda problem, _, limits: Outcome(strategies(problem, limits)))


SOLVERS: Mapping[str, GraphSolver] = MappingProxyType(
    {
        "ft": GraphSolver(lambda problem, *options: find(problem.problem, *options)),
        "data_parallel": baseline_solver(lambda problem, _: data_parallel.solve(problem)),
    }
)
"""The solvers of the package itself, by name."""


def solver(name: str) -> GraphSolver:
    """Return the solver of a name.

    Raises:
        OptionError: if no solver has the name; the message lists the names. Also if the solver is
            in the repository, and Python cannot import it from there.
    """
    if name in SOLVERS:
        return SOLVERS[name]
    reproduced = _reproduced()
    if name in reproduced:
        return reproduced[name]
    if name in REPRODUCED:
        raise OptionError(
            f"an algorithm of the installed package is one of {', '.join(SOLVERS)}. Got {name!r}, "
            "which is in the folder reproduction/baselines of TensorOpt's repository; run from a "
            "clone of it, or put the clone on PYTHONPATH."
        )
    raise OptionError.one_of("an algorithm", name, [*SOLVERS, *(reproduced or REPRODUCED)])


def _reproduced() -> Mapping[str, GraphSolver]:
    """The solvers of the repository, by name; none where Python does not find the repository."""
    try:
        module = importlib.import_module(_REPRODUCTION)
    except ModuleNotFoundError as error:
        if error.name is None or not _REPRODUCTION.startswith(error.name):
            raise  # the repository is there, and lacks a module that it needs
        return {}
    solvers: Mapping[str, GraphSolver] = module.SOLVERS
    return solvers
