"""A searched frontier by predicted steps as they are executed.

A search minimises a sum in which nothing hides behind computation. To price all of its points would
take longer than the search. Along a frontier, the ratio of executed step to sum changes in a few
places, so some points are priced, most of them where it changes, and the ratio is interpolated
between them. On 17 frontiers of the zoo, over fast and slow links, eight prices left errors of 0 to
1.3 % on average, and of 9 % at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.planner.prices.sampled_points import sampled
from tensoropt.search.pareto.frontier import Frontier, FrontierPoint
from tensoropt.search.pareto.reduce import reduce_points

__all__ = ["executed_frontier"]

_OPERATORS = 3_000
"""The approximate number of operators in all prices of a frontier; each takes 0.1 ms. This limit
does not depend on a clock, so the same request has the same plan on any machine."""
_MOST_CHECKED = 4
"""The most further points that are priced because they are the fastest that fits."""


def executed_frontier(
    searched: Frontier,
    step_of: Callable[[FrontierPoint], int],
    operators: int,
    usable_bytes: int,
    others: Sequence[FrontierPoint] = (),
) -> Frontier:
    """Return the strategies that no other beats in both memory and executed step.

    Args:
        searched: the frontier of a search.
        step_of: returns the predicted nanoseconds of a strategy's step as it is executed.
        operators: the operators of the step.
        usable_bytes: the memory that a strategy may take. The fastest strategy within it is priced,
            not interpolated.
        others: strategies that the search may have dropped, such as data parallelism, with their
            executed steps.

    Returns:
        The frontier. Its ``time`` is that of executed steps; ``exact``, ``within``, ``ended_by``
        and ``eliminations`` are those of the search.
    """

    def step_at(number: int) -> int:
        return step_of(searched[number])

    most = max(2, _OPERATORS // max(operators, 1))
    steps = sampled(searched.time, step_at, most, {})
    found, numbers = _reduced(searched, steps, others)
    for _ in range(_MOST_CHECKED):
        if found.memory[0] > usable_bytes:
            break
        number = int(numbers[found.fastest(usable_bytes)])
        if number in steps or number >= len(searched):
            break
        steps[number] = step_at(number)
        found, numbers = _reduced(searched, steps, others)
    return found


def _reduced(
    searched: Frontier, steps: Mapping[int, int], others: Sequence[FrontierPoint]
) -> tuple[Frontier, Int64Array]:
    """Return the frontier of executed steps, and for each of its points the number among those of
    the search, which other strategies follow.

    Args:
        searched: the frontier of a search.
        steps: the executed steps of some of its points, by number.
        others: other strategies with their executed steps.
    """
    priced = sorted(steps)
    ratios = [steps[number] / max(int(searched.time[number]), 1) for number in priced]
    between = searched.time * np.interp(np.arange(len(searched)), priced, ratios)
    between[priced] = [steps[number] for number in priced]
    costs = np.array([(each.memory, each.time) for each in others], np.int64).reshape(-1, 2)
    memory = np.concatenate([searched.memory, costs[:, 0]])
    time = np.concatenate([between.round().astype(np.int64), costs[:, 1]])
    strategies = np.concatenate([searched.strategies, *(each.strategy[None] for each in others)])
    numbers = reduce_points(memory, time)
    found = replace(
        searched, memory=memory[numbers], time=time[numbers], strategies=strategies[numbers]
    )
    return found, numbers
