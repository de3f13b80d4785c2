"""Known strategies together with those found, and the gap that bounds prove of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.message_passing import Bounds
from tensoropt.search.bounds.proven_gap import proven_gap
from tensoropt.search.pareto.frontier import Frontier, joined_frontier, reduced_frontier
from tensoropt.search.pareto.hull import between

__all__ = ["joined", "joined_with_between", "proven"]


def joined(problem: Problem, incumbent: Frontier | None, found: Int32Array) -> Frontier:
    """The frontier of known strategies, if there are any, and those found, int32[any, nodes]."""
    if incumbent is not None and not len(found):
        return incumbent
    new = reduced_frontier(*problem.costs(found), found)
    return new if incumbent is None else joined_frontier(incumbent, new)


def joined_with_between(problem: Problem, known: Frontier) -> Frontier:
    """A frontier with strategies on the way along it."""
    return joined(problem, known, between(known.strategies))


def proven(known: Frontier, bounds: Sequence[Bounds], start: Int64Array) -> Frontier:
    """A frontier with the gap that bounds prove of it, unless a narrower one is known.

    Args:
        known: the frontier.
        bounds: for some weights.
        start: int64[nodes + 1], where each node's configurations are in the bounds.
    """
    gaps = proven_gap(bounds, known, start), known.within
    return replace(known, within=min((gap for gap in gaps if gap is not None), default=None))
