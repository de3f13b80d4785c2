"""The result of a solver: a frontier, or that the problem is too large for the solver."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.errors import SearchSizeError
from tensoropt.search.pareto.frontier import Frontier

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a search ended.

    Attributes:
        frontier: optimal, within a gap, or the best known one when the search was ended. None where
            the problem is too large, or nothing lies in the solver's search region.
        is_too_large: whether the problem exceeds the solver's limits, and another solver has to be
            tried.
        additions: the additions that an exact search had taken when its tables became too large,
            without those for promising states; else 0.
    """

    frontier: Frontier | None
    is_too_large: bool = False
    additions: float = 0.0

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
