"""A search whose tables become too large says what it knows, or an error: it fills no memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensoropt.errors import SearchSizeError
from tensoropt.search import Frontier, Problem, brute_force, frontier_tracking
from tensoropt.search.bounds.pruning_context import PruningContext
from tensoropt.search.exact.bounded import bounded_frontier
from tensoropt.search.exact.ft_ldp import ft_ldp
from tensoropt.search.limits import DEFAULT_LIMITS
from tensoropt.search.outcome import Outcome

Maker = Callable[[int], Problem]
Covers = Callable[[Frontier, Frontier, float], bool]


def only_the_first(problem: Problem, context: PruningContext | None) -> Outcome:
    """A solver to which all that is left, once strategies are known, is too large."""
    if context is not None:
        return Outcome.too_large()
    return ft_ldp(problem, None, 0.0, DEFAULT_LIMITS)


def test_with_bounds_what_is_known_is_told(
    positive_problem: Maker, monkeypatch: pytest.MonkeyPatch, covers: Covers
) -> None:
    monkeypatch.setattr("tensoropt.search.exact.bounded._MOST_PROMISING", 6)
    inexact = 0
    for seed in range(60):
        problem = positive_problem(seed)
        truth = brute_force(problem)
        found = bounded_frontier(problem, only_the_first)
        memory, time = problem.costs(found.strategies)
        assert np.array_equal(memory, found.memory)
        assert np.array_equal(time, found.time)
        if found.within is not None:
            assert covers(found, truth, found.within), seed
        inexact += not found.exact
    assert inexact > 10


def test_without_bounds_it_is_an_error_that_says_what_helps(
    positive_problem: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensoropt.search.pareto.merge._MOST_POINTS", 1)
    several = next(
        problem for problem in map(positive_problem, range(99)) if len(brute_force(problem)) > 2
    )
    with pytest.raises(SearchSizeError, match="with bounds"):
        frontier_tracking(several, bounds=False)


@pytest.mark.parametrize("epsilon", [0.0, 0.001, 0.5])
def test_with_bounds_it_is_no_error(
    positive_problem: Maker, monkeypatch: pytest.MonkeyPatch, covers: Covers, epsilon: float
) -> None:
    monkeypatch.setattr("tensoropt.search.exact.bounded._SMALL_CELLS", 0)
    monkeypatch.setattr(
        "tensoropt.search.supported.near_frontier._MOST_CELLS", 1
    )  # points are needed there, too
    problems = [positive_problem(seed) for seed in range(40)]
    truths = [brute_force(problem) for problem in problems]
    monkeypatch.setattr("tensoropt.search.pareto.merge._MOST_POINTS", 1)
    for problem, truth in zip(problems, truths, strict=True):
        found = frontier_tracking(problem, epsilon=epsilon)
        assert truth.dominates(found)
        if found.within is not None:
            assert covers(found, truth, found.within)
