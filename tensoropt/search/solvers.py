"""Solvers by name: frontier tracking, the strategies of other systems, and enumeration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tensoropt.errors import OptionError
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines import data_parallel, mesh_tensorflow, optcnn, tofu, tofu_recursive
from tensoropt.search.baselines.brute_force import brute_force
from tensoropt.search.find import find
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["SOLVERS", "GraphSolver", "solver"]


@dataclass(frozen=True, slots=True)
class GraphSolver:
    """A solver of a graph's problem, with what its numbers stand for."""

    solve: Callable[[GraphProblem, float, SearchLimits], Outcome]

    def __call__(
        self, problem: GraphProblem, epsilon: float = 0.0, limits: SearchLimits = DEFAULT_LIMITS
    ) -> Outcome:
        """The frontier of the strategies that the solver looks at, one point where it is one."""
        return self.solve(problem, epsilon, limits)


def _baseline(strategies: Callable[[GraphProblem, SearchLimits], Frontier]) -> GraphSolver:
    """A solver whose strategies are the same however near they may be."""
    return GraphSolver(lambda problem, _, limits: Outcome(strategies(problem, limits)))


SOLVERS: Mapping[str, GraphSolver] = MappingProxyType(
    {
        "ft": GraphSolver(lambda problem, *options: find(problem.problem, *options)),
        "data_parallel": _baseline(lambda problem, _: data_parallel.solve(problem)),
        "optcnn": _baseline(optcnn.solve),
        "tofu": _baseline(tofu.solve),
        "tofu_recursive": _baseline(tofu_recursive.solve),
        "mesh_tensorflow": _baseline(mesh_tensorflow.solve),
        "brute_force": _baseline(lambda problem, limits: brute_force(problem.problem, limits)),
    }
)
"""By the names that ``find_strategy(algorithm=...)`` knows them by."""


def solver(name: str) -> GraphSolver:
    """The solver of a name.

    Raises:
        OptionError: if there is none; lists them.
    """
    if name in SOLVERS:
        return SOLVERS[name]
    raise OptionError.one_of("an algorithm", name, SOLVERS)
