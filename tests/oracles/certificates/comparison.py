"""A frontier beside linear programs, at memory limits along the frontier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensoropt.problem.model import Problem
from tensoropt.search.pareto.frontier import Frontier
from tests.oracles.certificates.fixing import fixed
from tests.oracles.certificates.ilp import Solution, least_time, whole_bound
from tests.oracles.certificates.reduction import Reduced

__all__ = ["Row", "compared", "limits_of", "worth_of_a_byte"]

# Programs with more variables are made smaller by reduced costs first.
MOST_VARIABLES = 3_000


@dataclass(frozen=True, slots=True)
class Row:
    """The comparison at one memory limit.

    Attributes:
        limit: the limit in bytes.
        frontier: nanoseconds of the frontier's fastest point within the limit.
        program: nanoseconds of the fastest strategy that the program found; None if it found none.
        bound: nanoseconds that no strategy undercuts, by the program or by reduced costs.
        gap: difference between the frontier's time and the bound (or the program's optimum), as a
            share.
        seconds: time spent on the program.
        variables: number of the program's variables.
        fixed: whether reduced costs made the program smaller.
        verdict: "equal": the optimum is the frontier's time; "within dual bound": the program was
            not solved and does not contradict the frontier; "better": it found a faster strategy
            than an inexact frontier; "CONTRADICTION" otherwise.
    """

    limit: int
    frontier: int
    program: int | None
    bound: float
    gap: float
    seconds: float
    variables: int
    fixed: bool
    verdict: str

    @property
    def contradicts(self) -> bool:
        """Whether the frontier or the program is wrong."""
        return self.verdict == "CONTRADICTION"


def limits_of(frontier: Frontier, count: int) -> list[int]:
    """Choose ``count`` memory limits along a frontier, if possible between its points."""
    memory = frontier.memory.astype(np.float64)
    beyond = memory[-1] + max((memory[-1] - memory[0]) / memory.size, 1.0)
    places = (np.arange(count) + 0.5) * memory.size / count
    return [
        int(limit) for limit in np.interp(places, np.arange(memory.size + 1), [*memory, beyond])
    ]


def worth_of_a_byte(frontier: Frontier, limit: int) -> float:
    """Nanoseconds per byte on the frontier's lower convex hull at the limit."""
    fits = frontier.memory <= limit
    if fits.all():
        return 0.0
    near = frontier.memory[fits].astype(np.float64), frontier.time[fits].astype(np.float64)
    far = frontier.memory[~fits].astype(np.float64), frontier.time[~fits].astype(np.float64)
    slopes = (near[1][:, None] - far[1]) / (far[0] - near[0][:, None])
    at_limit = near[1][:, None] - slopes * (limit - near[0][:, None])
    return float(slopes.flat[int(at_limit.argmin())])


def compared(
    problem: Problem, left: Reduced, frontier: Frontier, limit: int, seconds: float
) -> Row:
    """Compare the frontier's time at a limit with a linear program's.

    Args:
        problem: the searched problem.
        left: the problem as `reduced` returns it.
        frontier: the frontier that the search found.
        limit: memory limit in bytes; at least the frontier's least memory.
        seconds: time limit of HiGHS.
    """
    claimed = int(frontier.time[frontier.fastest(limit)])
    too_large = left.variables > MOST_VARIABLES
    cells, known = None, 0
    if too_large:
        fewer = fixed(left, limit, claimed, worth_of_a_byte(frontier, limit))
        if fewer is None:  # reduced costs exclude even the claimed strategy
            return Row(limit, claimed, None, np.inf, np.inf, 0.0, 0, True, "CONTRADICTION")
        left, cells, known = fewer.left, fewer.cells, fewer.bound
    found = least_time(problem, left, limit, seconds, cells)
    bound = max(found.bound, known)
    verdict = _verdict(found, bound, claimed, frontier.exact)
    least = found.nanoseconds if found.optimal and found.nanoseconds is not None else bound
    gap = abs(claimed - least) / claimed if claimed else abs(claimed - least)
    return Row(
        limit,
        claimed,
        found.nanoseconds,
        bound,
        gap,
        found.seconds,
        found.variables,
        too_large,
        verdict,
    )


def _verdict(found: Solution, bound: float, claimed: int, exact: bool) -> str:
    if found.nanoseconds is not None and found.nanoseconds < claimed:
        return "CONTRADICTION" if exact else "better"
    if bound != np.inf and whole_bound(bound) <= claimed:
        return "equal" if found.optimal and found.nanoseconds == claimed else "within dual bound"
    return "CONTRADICTION"
