"""Known strategies together with those found, and the gap that bounds prove of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tensoropt.arrays import Int32Array, Int64Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.message_passing import Bounds
from tensoropt.search.bounds.proven_gap import proven_gap
from tensoropt.search.pareto.frontier import Frontier, joined_frontier, reduced_frontier
from tensoropt.search.pareto.hull import between

__all__ = ["and_between", "with_found"]


def and_between(problem: Problem, incumbent: Frontier | None, found: Int32Array) -> Int32Array:
    """Strategies found, and those on the way along the frontier of known ones and these.

    Args:
        problem: whose strategies they are.
        incumbent: the known ones, if there are any.
        found: int32[any, nodes].

    Returns:
        int32[any, nodes].
    """
    return np.concatenate([found, between(_joined(problem, incumbent, found).strategies)])


def with_found(
    problem: Problem,
    incumbent: Frontier | None,
    found: Int32Array,
    bounds: Sequence[Bounds],
    start: Int64Array,
) -> Frontier:
    """The frontier of known strategies and those found, with its proven gap.

    Args:
        problem: whose strategies they are.
        incumbent: the known ones, if there are any.
        found: int32[any, nodes].
        bounds: for some weights.
        start: int64[nodes + 1], where each node's configurations are in the bounds.
    """
    result = _joined(problem, incumbent, found)
    gaps = [proven_gap(bounds, result, start), None if incumbent is None else incumbent.within]
    return replace(result, within=min((gap for gap in gaps if gap is not None), default=None))


def _joined(problem: Problem, incumbent: Frontier | None, found: Int32Array) -> Frontier:
    if incumbent is not None and not len(found):
        return incumbent
    new = reduced_frontier(*problem.costs(found), found)
    return new if incumbent is None else joined_frontier(incumbent, new)
