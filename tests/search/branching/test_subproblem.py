"""A part of a problem: its bounds hold for every strategy, however they come about."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.arrays import Int32Array
from tensoropt.problem.restrict import restrict
from tensoropt.search import Problem
from tensoropt.search.bounds.message_passing import Bounds
from tensoropt.search.branching import subproblem as parts
from tensoropt.search.branching.subproblem import Subproblem
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.scalar import large_neighbourhood
from tensoropt.search.scalar.large_neighbourhood import Neighbourhoods

Maker = Callable[[int], Problem]


@pytest.mark.parametrize("slack", [0.0, 0.1])
def test_bounds_between_two_pairs_of_weights_hold(
    positive_problem: Maker, monkeypatch: pytest.MonkeyPatch, slack: float
) -> None:
    """Weights between two others are bounded by them, without a sweep of all configurations."""
    monkeypatch.setattr(parts, "FEW_CELLS", np.inf)
    looked_at = 0
    for seed in range(40):
        problem = positive_problem(seed)
        counts = [node.configurations for node in problem.nodes]
        if np.prod(counts, dtype=np.float64) > 5_000:
            continue
        strategies = np.array(list(product(*map(range, counts))), dtype=np.int32)
        memory, time = problem.costs(strategies)
        worth = problem.byte_worth or 1.0
        part = Subproblem(FlatGraph.of(problem))
        part.bound([(1.0, worth / 9), (1.0, worth * 9)], 2, 0.0, slack)
        for share in (1 / 3, 1.0, 2.0):
            weights = 1.0, worth * share
            points, _, _ = part.bound([weights], 2, 0.0, slack)
            costs = time + weights[1] * memory
            bounds = next(each for each in part.bounds if each.weights == weights)
            assert bounds.least <= costs.min() * (1 + 1e-9)
            assert points.time[0] + weights[1] * points.memory[0] >= costs.min() * (1 - 1e-9)
            for node, own in enumerate(np.split(bounds.min_marginals, part.start[1:-1])):
                for state, bound in enumerate(own.tolist()):
                    true = costs[strategies[:, node] == state].min()
                    assert bound <= true * (1 + 1e-9), (seed, node, state)
            looked_at += 1
    assert looked_at > 20


def test_no_mixture_of_known_strategies_is_cheaper_than_a_recombined_one(
    positive_problem: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From random strategies, and without neighbourhoods, recombination finds the best mixture."""
    random = np.random.default_rng(7)

    def anything(self: Neighbourhoods, bounds: Bounds) -> Int32Array:
        sizes = np.diff(self._table.start)
        return (random.random(sizes.size) * sizes).astype(np.int32)

    monkeypatch.setattr(Neighbourhoods, "near_bounds", anything)
    monkeypatch.setattr(large_neighbourhood, "PROMISING", 1)
    monkeypatch.setattr(large_neighbourhood, "_mark_near", lambda *_: None)
    recombined = 0
    for seed in range(40):
        problem = positive_problem(seed)
        if not problem.edges:
            continue
        part = Subproblem(FlatGraph.of(problem))
        weights = [(1.0, (problem.byte_worth or 1.0) * share) for share in (0.0, 0.3, 3.0)]
        points, _, _ = part.bound(weights, 1, 0.0, 0.0)
        memory, time, strategies = list(points.memory), list(points.time), list(points.strategies)
        while (points := part.recombine(weights)) is not None:
            recombined += 1
            memory += list(points.memory)
            time += list(points.time)
            strategies += list(points.strategies)
        again = problem.costs(np.array(strategies))
        assert np.array_equal(again, [memory, time])
        mixed = brute_force(restrict(problem, [np.unique(own) for own in np.array(strategies).T]))
        for u, w in weights:
            known = (u * again[1] + w * again[0]).min()
            assert known <= (u * mixed.time + w * mixed.memory).min() * (1 + 1e-5), seed
    assert recombined > 5
