"""Strategies near the lower hull of a large problem's frontier, by neighbourhoods."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tensoropt.problem.model import Problem
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods
from tensoropt.search.supported.joining import joined, proven
from tensoropt.search.threads import in_threads
from tensoropt.search.tolerances import PROVEN_SHARE
from tensoropt.search.watch import keep, tell

__all__ = ["near_hull"]

# Weights at a time, the same on every machine, so that strategies are, too.
_AT_ONCE = 2


def near_hull(
    problem: Problem,
    table: WeightedBounds,
    incumbent: Frontier | None,
    bounds: Sequence[Bounds],
    epsilon: float,
) -> Frontier:
    """Return the incumbent with strategies of nearly least cost for the bounds' weights.

    From the weights of memory to those of time and back, each search begins with the best known
    strategy: of many strategies with nearly the same time, those that also take little memory fit
    together best. The result is kept once each weight has been searched, both ends included.

    Args:
        problem: the problem of the strategies.
        table: the problem in flat arrays.
        incumbent: strategies to begin with, if there are any.
        bounds: for some weights.
        epsilon: the widest gap allowed between points.
    """
    near = Neighbourhoods(table)
    if incumbent is None:
        alone = np.split(bounds[-1].min_marginals, table.start[1:-1])
        incumbent = joined(problem, None, np.array([[own.argmin() for own in alone]], np.int32))
    ascending = sorted(bounds, key=lambda each: (each.weights[0] == 0, each.weights[1]))
    order = [*ascending[::-1], *ascending]
    for number in range(0, len(order), _AT_ONCE):
        tell("strategies of least cost", number, len(order))
        best = [(each, *incumbent.least(each.weights)) for each in order[number:][:_AT_ONCE]]
        tasks = [
            (each.weights, incumbent.strategies[place], near.promising(each))
            for each, place, cost in best
            if cost > each.least * (1 + PROVEN_SHARE * epsilon)
        ]
        strategies = in_threads(lambda task: near.improve(*task), tasks)
        incumbent = joined(problem, incumbent, np.array(strategies))
        if incumbent.within is not None or number + _AT_ONCE >= len(bounds):
            keep(partial(proven, incumbent, bounds, table.start))
    return incumbent
