"""A search whose tables become too large says what it knows, or an error: it fills no memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensoropt.errors import SearchSizeError
from tensoropt.search import Frontier, Problem, brute_force, frontier_tracking
from tensoropt.search.exact import bound_and_fix as bound_and_fix_module
from tensoropt.search.exact.bound_and_fix import bound_and_fix
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome

Maker = Callable[[int], Problem]
Covers = Callable[[Frontier, Frontier, float], bool]


def test_with_bounds_what_is_known_is_returned(
    positive_problem: Maker, monkeypatch: pytest.MonkeyPatch, covers: Covers
) -> None:
    """All that is left, once strategies are known, is too large to be searched whole."""

    search = bound_and_fix_module._Left.search

    def only_small(left: Any, *arguments: Any, small: bool) -> Outcome:
        return search(left, *arguments, small=True) if small else Outcome(None, is_too_large=True)

    monkeypatch.setattr(bound_and_fix_module._Left, "search", only_small)
    limits = SearchLimits(promising_configurations=6)
    inexact = 0
    for seed in range(30):
        problem = positive_problem(seed)
        truth = brute_force(problem)
        found = bound_and_fix(problem, None, 0.0, limits).found
        memory, time = problem.costs(found.strategies)
        assert np.array_equal(memory, found.memory)
        assert np.array_equal(time, found.time)
        if found.within is not None:
            assert covers(found, truth, found.within), seed
        inexact += not found.exact
    assert inexact > 5


def test_without_bounds_it_is_an_error_that_says_what_helps(
    positive_problem: Maker,
) -> None:
    several = next(
        problem for problem in map(positive_problem, range(99)) if len(brute_force(problem)) > 2
    )
    with pytest.raises(SearchSizeError, match="with bounds"):
        frontier_tracking(several, bounds=False, limits=SearchLimits(table_points=1))


@pytest.mark.parametrize("epsilon", [0.0, 0.001, 0.5])
def test_with_bounds_it_is_no_error(
    positive_problem: Maker, covers: Covers, epsilon: float
) -> None:
    limits = SearchLimits(bounded_cells=0, plain_states=0, table_points=1)
    for problem in map(positive_problem, range(40)):
        truth = brute_force(problem)
        found = frontier_tracking(problem, epsilon=epsilon, limits=limits)
        assert truth.dominates(found)
        if found.within is not None:
            assert covers(found, truth, found.within)
