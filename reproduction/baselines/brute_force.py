"""The frontier by enumeration of all strategies, against which searches are checked."""

from __future__ import annotations

import numpy as np

from tensoropt.errors import OptionError
from tensoropt.problem.model import Problem
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.pareto.reduce import reduce_points

__all__ = ["brute_force"]

_BLOCK = 1 << 18  # strategies that are priced at once
_MOST_STRATEGIES = 5_000_000  # takes about ten seconds


def brute_force(problem: Problem, most_strategies: int = _MOST_STRATEGIES) -> Frontier:
    """The cost frontier of all strategies of ``problem``, by equation 3 and Algorithm 1.

    If strategies have equal costs, the lexicographically first one is kept.

    Raises:
        OptionError: if there are more strategies than ``most_strategies``.
    """
    count = problem.strategies
    if count > most_strategies:
        raise OptionError(
            f"brute force tries at most {most_strategies:,} strategies. Got {count:,}; use "
            "frontier tracking, algorithm='ft'."
        )
    radices = [node.configurations for node in problem.nodes]
    found = np.zeros((3, 0), dtype=np.int64)  # numbers, memory and time
    for start in range(0, count, _BLOCK):
        numbers = np.arange(start, min(start + _BLOCK, count))
        strategies = np.stack(np.unravel_index(numbers, radices), axis=1)
        found = np.concatenate([found, [numbers, *problem.costs(strategies)]], axis=1)
        found = found[:, reduce_points(*found[1:])]
    strategies = np.stack(np.unravel_index(found[0], radices), axis=1)
    return Frontier(found[1], found[2], strategies.astype(np.int32))
