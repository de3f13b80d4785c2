"""Strategies near the lower hull of a large problem's frontier, by neighbourhoods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.arrays import Int32Array
from tensoropt.problem.model import Problem
from tensoropt.search.bounds.message_passing import Bounds, WeightedBounds, nearest
from tensoropt.search.limits import SearchLimits
from tensoropt.search.pareto.region import Weights
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods
from tensoropt.search.supported.points import Points, Strategy, dichotomy
from tensoropt.search.threads import in_threads
from tensoropt.search.watch import tell

__all__ = ["strategies_near_hull"]

# Weights at a time: on every machine the same, so that what is found is, too.
_AT_ONCE = 2
# What is known is searched no further where a bound says that it is as near as this share of
# epsilon.
_PROVEN = 0.05


def strategies_near_hull(
    problem: Problem,
    table: WeightedBounds,
    incumbents: Int32Array,
    bounds: Sequence[Bounds],
    epsilon: float,
    limits: SearchLimits,
) -> Int32Array:
    """Strategies of nearly least cost for the bounds' weights and between, by ascending memory.

    From the weights of memory to those of time and back, each begins with the best that is known:
    of many strategies that take nearly the same time, those that also take little memory fit
    together best.

    Args:
        problem: whose strategies they are.
        table: the same in flat arrays.
        incumbents: int32[any, nodes], strategies to begin with, maybe none.
        bounds: for some weights.
        epsilon: how wide a gap between points may be.
        limits: of weights between those of the bounds.

    Returns:
        int32[any, nodes].
    """
    weights = [each.weights for each in bounds]
    near = Neighbourhoods(problem, table)
    promising = [near.promising(each) for each in bounds]
    points = Points(problem, incumbents)
    if not len(points):
        alone = np.split(bounds[-1].min_marginals, table.start[1:-1])
        points.add(np.array([own.argmin() for own in alone], dtype=np.int32))

    def search(pairs: Sequence[Weights]) -> list[Strategy]:
        tasks = [
            (pair, points[points.best(pair)], promising[nearest(pair, weights)]) for pair in pairs
        ]
        found: list[Strategy] = []
        # The first neighbourhood decides in which order nodes are eliminated in all.
        while len(found) < len(tasks) and not near.has_order:
            found.append(near.improve(*tasks[len(found)]))
        return found + in_threads(lambda task: near.improve(*task), tasks[len(found) :])

    def may_gain(each: Bounds) -> bool:
        memory, time = points.best(each.weights)
        least = each.weights[0] * time + each.weights[1] * memory
        return least > each.least * (1 + _PROVEN * epsilon)

    ascending = sorted(bounds, key=lambda each: (each.weights[0] == 0, each.weights[1]))
    order = [*ascending[::-1], *ascending]
    for number in range(0, len(order), _AT_ONCE):
        tell("strategies of least cost", number, len(order))
        pairs = [each.weights for each in order[number : number + _AT_ONCE] if may_gain(each)]
        for strategy in search(pairs):
            points.add(strategy)
    dichotomy(points, search, epsilon=epsilon, at_once=_AT_ONCE, most=limits.weights_between)
    return points.strategies
