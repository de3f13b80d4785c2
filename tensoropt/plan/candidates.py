"""Candidates for measuring: points of a frontier, fastest first, and data parallelism."""

from __future__ import annotations

from dataclasses import replace

from tensoropt.plan.choose import choose
from tensoropt.plan.from_frontier import plan_for
from tensoropt.plan.plan import Plan
from tensoropt.plan.request import Request
from tensoropt.search.solvers import solver

__all__ = ["Candidates"]


class Candidates:
    """What an option of ``find_strategy`` chooses from, in the order of its choice.

    Args:
        request: what a strategy is looked for.
        option: "mini_time", or "mini_parallelism", whose candidates all use the fewest devices.

    Raises:
        InfeasibleError: no strategy fits the memory limit.
    """

    def __init__(self, request: Request, option: str = "mini_time") -> None:
        self._choice = choose(request, option)

    def __len__(self) -> int:
        """How many points of the frontier fit the memory limit."""
        return self._choice.point + 1

    def __getitem__(self, number: int) -> Plan:
        """The predicted fastest point after ``number`` others, of those that fit the limit.

        Along a frontier memory ascends as time descends, so each takes less memory than the one
        before.
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        choice = self._choice
        point = choice.frontier[choice.point - number]
        peak = None if number or choice.preferred else choice.peak
        return plan_for(choice.request, choice.problem, choice.frontier, point, choice.option, peak)

    def data_parallel(self) -> Plan:
        """Data parallelism on the same devices, whether or not it fits the memory limit."""
        problem = self._choice.problem
        request = replace(self._choice.request, algorithm="data_parallel")
        frontier = solver(request.algorithm)(problem).found
        return plan_for(request, problem, frontier, frontier[0], self._choice.option)
