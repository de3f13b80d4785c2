"""Bounds with fewer configurations in flat arrays are those of the smaller problem."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.arrays import BoolArray
from tensoropt.problem.restrict import restrict
from tensoropt.search import Problem
from tensoropt.search.bounds.message_passing import WeightedBounds
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods

Maker = Callable[[int], Problem]
Asks = Callable[[Problem], bool]


@pytest.mark.parametrize("weights", [(1.0, 0.7), (0.0, 1.0)])
def test_they_are_those_of_the_smaller_problem(
    random_problem: Maker, not_negative: Asks, weights: tuple[float, float]
) -> None:
    compared = 0
    for seed in range(40):
        problem = random_problem(seed)
        if not not_negative(problem):
            continue
        random = np.random.default_rng(seed)
        table = WeightedBounds(problem)
        for _ in range(2):  # of the whole, then of what is left
            alive = _some(table, random)
            kept = [np.flatnonzero(own) for own in np.split(alive, table.start[1:-1])]
            problem = restrict(problem, kept)
            before = table.bounds(*weights, 2)
            table, left = table.fewer(weights, alive)
            whole = WeightedBounds(problem)
            found, expected = table.bounds(*weights, 4), whole.bounds(*weights, 4)
            assert np.array_equal(table.start, whole.start)
            assert table.cells == whole.cells
            np.testing.assert_allclose(found.min_marginals, expected.min_marginals, rtol=1e-6)
            begun = table.all_bounds([weights], 4, [before.messages[left]])[0]
            truth = brute_force(problem)
            least = (weights[0] * truth.time + weights[1] * truth.memory).min()
            assert max(begun.least, found.least) <= least * (1 + 1e-9)
            strategy = truth.strategies[0]
            cost = weights[0] * truth.time[0] + weights[1] * truth.memory[0]
            assert Neighbourhoods(table).cost(weights, strategy) == pytest.approx(cost, rel=1e-6)
            compared += 1
    assert compared > 20


def _some(table: WeightedBounds, random: np.random.Generator) -> BoolArray:
    """A random choice of at least one configuration of each node."""
    alive: BoolArray = random.random(table.start[-1]) < 0.6
    alive[table.start[:-1] + random.integers(0, np.diff(table.start))] = True
    return alive
