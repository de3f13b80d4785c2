"""Limits of the search as one value: what decides how a problem is searched, and for how long.

A *cell* is a pair of slots of an edge, an *addition* one sum of a cell, a *state* a configuration
of a node, or of nodes that have been merged. All limits are counts, not seconds, so that a frontier
is the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_LIMITS", "SearchLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """When a solver is used, and when it gives up.

    Attributes:
        branch_states: states. Branch elimination makes no node of more; where no exact elimination
            is left, a heuristic one follows.
    """

    branch_states: int = 512

    @property
    def context_branch_states(self) -> int:
        """`branch_states` where pruning keeps tables small."""
        return 40 * self.branch_states


DEFAULT_LIMITS = SearchLimits()
