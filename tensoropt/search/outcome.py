"""What a solver returns: how its search ended, and the frontier that it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from tensoropt.errors import SearchSizeError
from tensoropt.problem.model import Problem
from tensoropt.search.limits import SearchLimits
from tensoropt.search.pareto.frontier import Frontier, joined_frontier

__all__ = ["Outcome", "Solver", "Status"]


class Status(Enum):
    """How a search ended."""

    OPTIMAL = "optimal"
    """The frontier is the whole one: nothing is better than any of its points."""
    WITHIN_GAP = "within a gap"
    """The frontier is approximate; its gap is ``Frontier.within``, None where none is proven."""
    INTERRUPTED = "interrupted"
    """Somebody ended the search; the frontier is the best one known then."""
    TOO_LARGE = "too large"
    """The problem is larger than the solver's limits; the frontier is the incumbent, or None."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a search ended, and with which frontier.

    Attributes:
        status: see `Status`.
        frontier: None only where there was no incumbent, and the problem is too large or nothing
            lies in the search region that the solver was to keep to.
    """

    status: Status
    frontier: Frontier | None

    @classmethod
    def of(cls, frontier: Frontier) -> Outcome:
        """Of a frontier that says itself whether it is exact."""
        return cls(Status.OPTIMAL if frontier.exact else Status.WITHIN_GAP, frontier)

    @classmethod
    def too_large(cls, incumbent: Frontier | None = None) -> Outcome:
        """Of a problem beyond a solver's limits."""
        return cls(Status.TOO_LARGE, incumbent)

    def joined_with(self, incumbent: Frontier | None) -> Outcome:
        """With the points of known strategies, where the frontier is not exact."""
        if incumbent is None or self.frontier is None or self.frontier.exact:
            return self
        return replace(self, frontier=joined_frontier(self.frontier, incumbent))

    @property
    def is_too_large(self) -> bool:
        """Whether another solver has to be tried."""
        return self.status is Status.TOO_LARGE

    @property
    def found(self) -> Frontier:
        """The frontier, where there has to be one.

        Raises:
            SearchSizeError: if the problem was too large and nothing was known before.
        """
        if self.frontier is None:
            raise SearchSizeError(
                "a search without bounds keeps all points of its tables in memory. Got more than "
                "fit; search with bounds, for which no cost may be negative."
            )
        return self.frontier


Solver: TypeAlias = Callable[[Problem, Frontier | None, float, SearchLimits], Outcome]
"""A problem, the incumbent (the best frontier known, if any), epsilon (how far from exact the
result may be) and limits to an outcome. `find`, all it chooses from and `series_parallel_hull` have
this signature; solvers of a graph's problem have it in `tensoropt.search.solvers`."""
