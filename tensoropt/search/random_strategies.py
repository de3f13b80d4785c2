"""Random strategies, from near the frontier to uniformly random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.find import frontier_tracking

__all__ = ["random_strategies"]


def random_strategies(
    problem: GraphProblem, count: int, seed: int, shares: Sequence[float] = ()
) -> list[list[int]]:
    """Return random strategies, the same in every process.

    Each is a random point of the frontier in which a share of the operators get a uniformly random
    configuration. Random shares are drawn so that the share of edges with both ends as on the
    frontier is uniform: with all configurations random, hundreds of operators would average out,
    and all strategies would take nearly the same time.

    Args:
        problem: the problem of the strategies.
        count: their number.
        seed: of the random numbers.
        shares: for each strategy, the share of operators with a random configuration; random if
            empty.

    Returns:
        The configuration numbers of each strategy's nodes.
    """
    random = np.random.default_rng(seed)
    frontier = frontier_tracking(problem.problem).strategies
    options = np.array([len(choice.options) for choice in problem.choices])
    strategies = []
    for number in range(count):
        point = frontier[random.integers(len(frontier))]
        draws = random.random(options.size)
        unchanged = 1 - shares[number] if shares else random.random() ** 0.5
        strategies.append(np.where(draws > unchanged, random.integers(options), point).tolist())
    return strategies
