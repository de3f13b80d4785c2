"""Random strategies as users may get them: between the frontier and any."""

from __future__ import annotations

import numpy as np

from tensoropt.search.from_graph import GraphProblem
from tensoropt.search.frontier_tracking import frontier_tracking

__all__ = ["drawn"]


def drawn(problem: GraphProblem, count: int, seed: int) -> list[list[int]]:
    """As many random strategies, the same ones in every process.

    Each begins at a random point of the frontier, and some of its operators get any configuration
    instead, so many that the share of edges with two ends as on the frontier is random, from none
    to all: where all get any, hundreds of operators average out and all strategies take nearly the
    same time.

    Args:
        problem: what they are of.
        count: how many.
        seed: another one draws others.

    Returns:
        The configuration numbers of each one's nodes.
    """
    random = np.random.default_rng(seed)
    frontier = frontier_tracking(problem.problem).strategies
    options = np.array([len(choice.options) for choice in problem.choices])
    found = []
    for _ in range(count):
        point = frontier[random.integers(len(frontier))]
        changed = random.random(options.size) > random.random() ** 0.5
        found.append(np.where(changed, random.integers(options), point).tolist())
    return found
