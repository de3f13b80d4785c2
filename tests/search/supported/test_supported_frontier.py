"""Frontiers within a stated share: proven bounds hold against enumeration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Frontier, Problem, frontier_tracking
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.supported.supported_frontier import supported_frontier

Maker = Callable[[int], Problem]
Asks = Callable[[Problem], bool]
Covers = Callable[[Frontier, Frontier, float], bool]

EPSILONS = (0.001, 0.1, 1.0)


def test_what_is_stated_holds_against_enumeration(
    random_problem: Maker, not_negative: Asks, covers: Covers
) -> None:
    seeds = [seed for seed in range(100) if not_negative(random_problem(seed))][:15]
    stated = exact = 0
    for seed in seeds:
        problem = random_problem(seed)
        truth = brute_force(problem)
        found = supported_frontier(problem, None, 0.001, DEFAULT_LIMITS).found
        memory, time = problem.costs(found.strategies)
        assert np.array_equal(memory, found.memory)
        assert np.array_equal(time, found.time)
        assert truth.dominates(found)
        if found.within is not None:
            stated += 1
            assert covers(found, truth, found.within), seed
        exact += found.same_costs(truth)
    assert stated > len(seeds) // 2
    assert exact > len(seeds) // 4


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_epsilon_of_frontier_tracking_holds_against_enumeration(
    random_problem: Maker,
    epsilon: float,
    not_negative: Asks,
    covers: Covers,
) -> None:
    limits = SearchLimits(bounded_cells=0, plain_states=0)  # small problems, too
    for seed in range(30):
        problem = random_problem(seed)
        if not not_negative(problem):
            continue
        truth = brute_force(problem)
        found = frontier_tracking(problem, epsilon=epsilon, limits=limits)
        assert found.within is not None
        assert found.within <= epsilon
        assert truth.dominates(found)
        assert covers(found, truth, epsilon), seed


def test_known_strategies_are_never_lost(random_problem: Maker, not_negative: Asks) -> None:
    for seed in range(20):
        problem = random_problem(seed)
        if not not_negative(problem):
            continue
        truth = brute_force(problem)
        known = Frontier(truth.memory, truth.time, truth.strategies, exact=False)
        found = supported_frontier(problem, known, 0.001, DEFAULT_LIMITS).found
        assert found.same_costs(truth)
