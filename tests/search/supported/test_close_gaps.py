"""Closing gaps by exact eliminations among what bounds leave, against enumeration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Frontier, Problem
from tensoropt.search.bounds.message_passing import WeightedBounds, warm_bounds
from tensoropt.search.bounds.weights import wide_runs, widest_gaps
from tensoropt.search.flat.flat_graph import FlatGraph
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.scalar.series_parallel import weighted_elimination
from tensoropt.search.supported.close_gaps import close_gaps
from tensoropt.search.supported.joining import joined, proven

Maker = Callable[[int], Problem]
Asks = Callable[[Problem], bool]
Covers = Callable[[Frontier, Frontier, float], bool]

WEIGHTS = ((1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
EPSILON = 1e-3


def test_gaps_are_closed_to_what_is_stated(
    random_problem: Maker, not_negative: Asks, covers: Covers
) -> None:
    closer = 0
    for seed in range(60):
        problem = random_problem(seed)
        if not not_negative(problem) or weighted_elimination(FlatGraph.of(problem)) is None:
            continue
        truth = brute_force(problem)
        table = WeightedBounds(problem)
        bounds = warm_bounds(table, WEIGHTS, 1)
        first = np.zeros((1, len(problem.nodes)), dtype=np.int32)
        known = proven(joined(problem, None, first), bounds, table.start)
        found, _ = close_gaps(problem, table, known, bounds, EPSILON, DEFAULT_LIMITS)
        assert truth.dominates(found)
        assert found.dominates(known)
        if found.within is None:
            continue
        assert covers(found, truth, found.within), seed
        closer += known.within is None or found.within < known.within
        for pair in WEIGHTS:  # the ends of the hull and what is between are found exactly
            if found.within <= EPSILON:
                assert found.least(pair)[1] <= truth.least(pair)[1] * (1 + EPSILON)
    assert closer > 10


def test_gaps_have_two_ends(random_problem: Maker, not_negative: Asks) -> None:
    seen = 0
    for seed in range(60):
        problem = random_problem(seed)
        if not not_negative(problem):
            continue
        truth = brute_force(problem)
        known = Frontier(truth.memory, truth.time, truth.strategies, exact=False)
        bounds = warm_bounds(WeightedBounds(problem), WEIGHTS, 1)
        runs = wide_runs(known, bounds, EPSILON)
        for run in runs:
            assert 0 <= run[0] < run[-1] < len(known)
            assert run == sorted(set(run))
        seen += len(runs)
        assert wide_runs(known, bounds, float("inf")) == []
        assert widest_gaps(known, bounds, 2, float("inf"), halved=False) == []
    assert seen
