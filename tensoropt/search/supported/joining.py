"""Joining known strategies with new ones, and exact search of mixtures of known ones.

Where neighbours on a frontier's hull differ in many nodes, strategies with some nodes of one and
some of the other fill the gap between them (path relinking: Glover, "Tabu search and adaptive
memory programming", 1997). `recombine` searches all of them by eliminations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.problem.restrict import restrict, whole_strategies
from tensoropt.search.bounds.corner_gaps import narrowest, proven_gap
from tensoropt.search.bounds.message_passing import Bounds
from tensoropt.search.exact.ft_ldp import ft_ldp
from tensoropt.search.limits import SearchLimits
from tensoropt.search.pareto.frontier import Frontier, joined_frontier, reduced_frontier
from tensoropt.search.pareto.hull import between

__all__ = ["joined", "joined_with_between", "proven", "recombine"]


def joined(problem: Problem, incumbent: Frontier | None, found: Int32Array) -> Frontier:
    """Return the frontier of known strategies, if any, and new ones, int32[any, nodes]."""
    if incumbent is not None and not len(found):
        return incumbent
    new = reduced_frontier(*problem.costs(found), found)
    return new if incumbent is None else joined_frontier(incumbent, new)


def joined_with_between(problem: Problem, known: Frontier) -> Frontier:
    """Add strategies between all neighbours to a frontier."""
    return joined(problem, known, between(known.strategies))


def proven(known: Frontier, bounds: Sequence[Bounds], start: Int64Array) -> Frontier:
    """Add the gap that bounds prove to a frontier, unless it states a narrower one.

    Args:
        known: the frontier.
        bounds: for some weights.
        start: int64[nodes + 1], where each node's configurations begin in the bounds.
    """
    return replace(known, within=narrowest(proven_gap(bounds, known, start), known.within))


def recombine(
    problem: Problem, incumbent: Frontier, groups: Iterable[Sequence[int]], limits: SearchLimits
) -> Int32Array:
    """Return the frontiers of all mixtures of known strategies, for groups of their numbers.

    A group with too many mixtures to search adds nothing.

    Returns:
        int32[any, nodes].
    """
    strategies = [incumbent.strategies[:0]]
    for group in groups:
        choices = incumbent.strategies[list(group)]
        kept = [np.unique(own).astype(np.int64) for own in choices.T]
        mixed = ft_ldp(restrict(problem, kept), limits)
        if mixed.is_too_large:
            continue
        strategies.append(whole_strategies(kept, mixed.found.strategies))
    return np.concatenate(strategies)
