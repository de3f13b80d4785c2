"""Points left out by bounds, against enumeration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Frontier, Problem
from tensoropt.search.bounds.bound_set import BoundSet
from tensoropt.search.exact.ft_ldp import solve_graph
from tensoropt.search.exact.search_graph import SearchGraph
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.region import SearchRegion

Maker = Callable[[int], Problem]

WEIGHTS = ((1.0, 0.0), (0.0, 1.0), (1.0, 0.3), (1.0, 7.0))


def pruned(
    problem: Problem,
    memory: Sequence[int],
    time: Sequence[int],
    incumbent: Frontier | None = None,
) -> Outcome:
    """Solve for the strategies whose costs are better than the given ones."""
    graph = SearchGraph(problem)
    graph.prune(WEIGHTS, SearchRegion.below(np.array(memory), np.array(time)), sweeps=3)
    return solve_graph(graph, incumbent, 0.0, 512)


def costs(frontier: Frontier) -> list[tuple[int, int]]:
    return list(zip(frontier.memory.tolist(), frontier.time.tolist(), strict=True))


def test_what_known_strategies_lack_is_found(positive_problem: Maker) -> None:
    for seed in range(100):
        problem = positive_problem(seed)
        truth = costs(brute_force(problem))
        for known in (truth[::2], truth[1:] or truth, truth[:1]):
            missing = set(truth) - set(known)
            outcome = pruned(problem, *zip(*known, strict=True))
            found = outcome.frontier
            if found is None:
                assert not missing
                assert not outcome.is_too_large
                continue
            memory, time = problem.costs(found.strategies)
            assert np.array_equal(memory, found.memory)
            assert np.array_equal(time, found.time)
            if found.exact:
                assert missing <= set(costs(found))


def test_nothing_is_better_than_all(positive_problem: Maker) -> None:
    nothing = 0
    for seed in range(100):
        problem = positive_problem(seed)
        truth = brute_force(problem)
        all_ = truth.memory.tolist(), truth.time.tolist()
        assert pruned(problem, *all_, truth).found.same_costs(truth)
        nothing += pruned(problem, *all_).frontier is None
    assert nothing > 50


def test_what_may_be_is_below_one_corner_on_all_lines() -> None:
    random = np.random.default_rng(0)
    weights = np.array(WEIGHTS)
    for size in (1, 15, 16, 17, 300):
        memory = np.sort(random.choice(1_000, size, replace=False))
        time = np.sort(random.choice(1_000, size, replace=False))[::-1]
        region = SearchRegion.below(memory, time)
        corners = np.stack([region.time, region.memory], axis=1).clip(max=1e19)
        points = random.integers(0, 2_000, (200, 2))
        bounds = points @ weights.T - random.integers(0, 300, (200, weights.shape[0]))
        below = (bounds[:, None] <= corners @ weights.T).all(axis=2).any(axis=1)
        assert 0 < below.sum() < below.size
        found = BoundSet(WEIGHTS, region).possible(bounds)
        assert np.array_equal(found, below)
