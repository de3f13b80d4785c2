"""Strategies of least weighted cost from neighbourhoods: never worse, and often the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Frontier, Problem, frontier_tracking
from tensoropt.search.bounds.message_passing import WeightedBounds
from tensoropt.search.branching.branch_and_bound import branch_and_bound
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods

Maker = Callable[[int], Problem]
Asks = Callable[[Problem], bool]

WEIGHTS = ((1.0, 0.0), (1.0, 0.5), (1.0, 20.0), (0.0, 1.0))


def near(problem: Problem) -> Frontier:
    return branch_and_bound(problem, 0.001, DEFAULT_LIMITS).found


@pytest.fixture
def problems(random_problem: Maker, not_negative: Asks) -> list[Problem]:
    found = (random_problem(seed) for seed in range(40))
    return [problem for problem in found if not_negative(problem)][:15]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_strategy_becomes_no_worse_and_mostly_the_best(
    problems: list[Problem], weights: tuple[float, float]
) -> None:
    best = 0
    for problem in problems:

        def cost(strategy: Sequence[int], problem: Problem = problem) -> float:
            memory, time = problem.cost(strategy)
            return weights[0] * time + weights[1] * memory

        first = np.zeros(len(problem.nodes), dtype=np.int32)
        nothing = np.zeros(sum(node.configurations for node in problem.nodes), dtype=np.bool_)
        near = Neighbourhoods(WeightedBounds(problem))
        found = near.improve(weights, first, nothing).tolist()
        truth = brute_force(problem)
        least = float((weights[0] * truth.time + weights[1] * truth.memory).min())
        assert least - 1e-6 <= cost(found) <= cost(first.tolist())
        best += cost(found) <= least + 1e-6
    assert best > 0.8 * len(problems)


def test_a_problem_too_large_to_be_exact_says_within_what_it_is(
    problems: list[Problem],
) -> None:
    limits = replace(DEFAULT_LIMITS, bounded_cells=0)
    for problem in problems:
        truth = brute_force(problem)
        for found in (frontier_tracking(problem, limits=limits), near(problem)):
            assert truth.dominates(found)
            memory, time = problem.costs(found.strategies)
            assert np.array_equal(memory, found.memory)
            assert np.array_equal(time, found.time)
            if found.within is None:
                continue
            near_memory = found.memory[:, None] <= truth.memory * (1 + found.within) + 1e-6
            near_time = found.time[:, None] <= truth.time * (1 + found.within) + 1e-6
            assert (near_memory & near_time).any(axis=0).all()


def test_what_is_found_is_the_same_on_any_number_of_cores(
    problems: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for cores in (1, 4):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        found.append([near(problem) for problem in problems])
    for one, other in zip(*found, strict=True):
        assert one.same_costs(other)
        assert np.array_equal(one.strategies, other.strategies)
        assert one.within == other.within
