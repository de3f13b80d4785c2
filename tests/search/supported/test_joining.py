"""Between two strategies all that mix them are searched."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Frontier, Problem
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.pareto.hull import hull_of
from tensoropt.search.supported.joining import recombine

Maker = Callable[[int], Problem]


def test_every_mixture_of_neighbours_on_the_hull_is_no_better(random_problem: Maker) -> None:
    filled = 0
    for seed in range(60):
        problem = random_problem(seed)
        truth = brute_force(problem)
        hull = hull_of(truth.memory, truth.time)
        known = Frontier(truth.memory[hull], truth.time[hull], truth.strategies[hull], exact=False)
        found = recombine(problem, known, itertools.pairwise(range(len(hull))), DEFAULT_LIMITS)
        memory, time = problem.costs(found)
        for one, other in itertools.pairwise(hull):
            ends = truth.strategies[[one, other]]
            choices = [np.unique(column).tolist() for column in ends.T]
            mixed = np.array(list(itertools.product(*choices)))
            for more, longer in zip(*problem.costs(mixed), strict=True):
                assert ((memory <= more) & (time <= longer)).any()
        filled += found.shape[0] > 2 * (len(hull) - 1)
    assert filled > 5


def test_without_pairs_there_is_nothing_between(random_problem: Maker) -> None:
    truth = brute_force(random_problem(0))
    found = recombine(random_problem(0), truth, [], DEFAULT_LIMITS)
    assert found.shape == (0, truth.strategies.shape[1])
