"""A search whose tables become too large says what it knows, or an error: it fills no memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.errors import SearchSizeError
from tensoropt.search import Frontier, Problem, frontier_tracking
from tensoropt.search.limits import SearchLimits

Maker = Callable[[int], Problem]
Covers = Callable[[Frontier, Frontier, float], bool]


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
