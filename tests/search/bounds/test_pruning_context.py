"""Points left out by potentials, against enumeration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensoropt.search import Frontier, Problem, brute_force
from tensoropt.search.bounds.message_passing import WeightedBounds
from tensoropt.search.bounds.pruning_context import PruningContext, pruning_context
from tensoropt.search.exact.ft_ldp import ft_ldp
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.outcome import Status
from tensoropt.search.pareto.region import SearchRegion

Maker = Callable[[int], Problem]

WEIGHTS = ((1.0, 0.0), (0.0, 1.0), (1.0, 0.3), (1.0, 7.0))


def known_from(problem: Problem, memory: Sequence[int], time: Sequence[int]) -> PruningContext:
    table = WeightedBounds(problem)
    bounds = [table.bounds(*pair, sweeps=3) for pair in WEIGHTS]
    region = SearchRegion.below(np.array(memory), np.array(time))
    return pruning_context(problem, bounds, region)


def costs(frontier: Frontier) -> list[tuple[int, int]]:
    return list(zip(frontier.memory.tolist(), frontier.time.tolist(), strict=True))


def test_what_known_strategies_lack_is_found(positive_problem: Maker) -> None:
    for seed in range(100):
        problem = positive_problem(seed)
        truth = costs(brute_force(problem))
        for known in (truth[::2], truth[1:] or truth, truth[:1]):
            missing = set(truth) - set(known)
            seen = known_from(problem, *zip(*known, strict=True))
            outcome = ft_ldp(problem, None, 0.0, DEFAULT_LIMITS, context=seen)
            found = outcome.frontier
            if found is None:
                assert not missing
                assert outcome.status is Status.OPTIMAL
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
        seen = known_from(problem, truth.memory.tolist(), truth.time.tolist())
        outcome = ft_ldp(problem, truth, 0.0, DEFAULT_LIMITS, context=seen)
        assert outcome.found.same_costs(truth)
        nothing += ft_ldp(problem, None, 0.0, DEFAULT_LIMITS, context=seen).frontier is None
    assert nothing > 50
