"""Random strategies as users may get them: between the frontier and any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.find import frontier_tracking

__all__ = ["random_strategies"]


def random_strategies(
    problem: GraphProblem, count: int, seed: int, shares: Sequence[float] = ()
) -> list[list[int]]:
    """As many random strategies, the same ones in every process.

    Each begins at a random point of the frontier, and a share of its operators get any
    configuration instead. Where that share is random, too, the share of edges with two ends as on
    the frontier is evenly spread: where all operators get any, hundreds of them average out and all
    strategies take nearly the same time.

    Args:
        problem: what they are of.
        count: how many.
        seed: another one draws others.
        shares: of operators that get any configuration, of each strategy; random if empty.

    Returns:
        The configuration numbers of each one's nodes.
    """
    random = np.random.default_rng(seed)
    frontier = frontier_tracking(problem.problem).strategies
    options = np.array([len(choice.options) for choice in problem.choices])
    found = []
    for number in range(count):
        point = frontier[random.integers(len(frontier))]
        beyond = random.random(options.size)
        kept = 1 - shares[number] if shares else random.random() ** 0.5
        found.append(np.where(beyond > kept, random.integers(options), point).tolist())
    return found
