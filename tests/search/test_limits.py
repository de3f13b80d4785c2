"""Limits are checked where they are made; others are no less true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from benchmarks.search.enumerated import SMALL
from reproduction.baselines.brute_force import brute_force
from tensoropt.errors import OptionError
from tensoropt.search import Frontier, Problem, frontier_tracking
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits

Maker = Callable[[int], Problem]
Covers = Callable[[Frontier, Frontier, float], bool]

FEW_ADDITIONS = replace(SMALL, branching_additions=2e4)


@pytest.mark.parametrize("name", [field.name for field in fields(SearchLimits)])
def test_no_limit_is_below_its_least(name: str) -> None:
    default = getattr(DEFAULT_LIMITS, name)
    wrong: list[Any] = [-1, float("nan")]
    for value in wrong:
        with pytest.raises(OptionError, match=f"^{name} .*Got .*; the default is"):
            SearchLimits(**{name: value})
    assert SearchLimits(**{name: default}) == DEFAULT_LIMITS


@pytest.mark.parametrize("name", ["table_points", "branch_states"])
def test_what_is_divided_by_is_not_zero(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is at least 1. Got 0"):
        SearchLimits(**{name: 0})


def test_all_counts_are_scaled_and_no_share() -> None:
    more = DEFAULT_LIMITS.scaled(2)
    assert more.exact_states == 2 * DEFAULT_LIMITS.exact_states
    assert more.few_cells == DEFAULT_LIMITS.few_cells
    assert more.branching_additions == 2 * DEFAULT_LIMITS.branching_additions
    assert more.approximate_gap == DEFAULT_LIMITS.approximate_gap
    assert DEFAULT_LIMITS.scaled(1) == DEFAULT_LIMITS
    least = DEFAULT_LIMITS.scaled(0)
    assert (least.branch_states, least.bounded_cells) == (1, 0)


def test_a_longer_exact_search_has_all_its_additions_whatever_is_alike() -> None:
    """A decoder of one layer was left at 2.5 % after 22 seconds without, and is exact in 2."""
    longer, quick = DEFAULT_LIMITS.longer_exact, DEFAULT_LIMITS.exact
    assert longer.unlike_additions == longer.table_additions > quick.table_additions
    assert quick.unlike_additions < quick.table_additions


def test_the_gap_that_is_asked_for_hangs_on_cells_alone(positive_problem: Maker) -> None:
    problem = positive_problem(0)
    cells = sum(edge.time.size for edge in problem.edges)
    for factor in (0.5, 1.0, 2.0):
        few = replace(DEFAULT_LIMITS, few_cells=cells).scaled(factor)
        many = replace(DEFAULT_LIMITS, few_cells=cells - 1).scaled(factor)
        assert few.gap(problem) == DEFAULT_LIMITS.closing_gap
        assert many.gap(problem) == DEFAULT_LIMITS.approximate_gap


def test_gaps_are_true_at_half_the_limits_and_at_twice(
    positive_problem: Maker, covers: Covers
) -> None:
    gaps: dict[float, list[float | None]] = {}
    for seed in (0, 5, 6, 7, 8, 9):
        problem = positive_problem(seed)
        truth = brute_force(problem)
        for factor in (0.5, 1.0, 2.0):
            for epsilon in (0.0, 0.01):
                limits = FEW_ADDITIONS.scaled(factor)
                found = frontier_tracking(problem, epsilon=epsilon, limits=limits)
                assert truth.dominates(found)
                assert found.within is None or covers(found, truth, found.within), seed
                gaps.setdefault(factor, []).append(found.within)
    assert gaps[0.5] != gaps[2.0]
