"""The comparison of searches with enumeration: no search is wrong, and it would say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.search.enumerated import FAMILIES, LIMITS, problem_of, what_is_wrong
from reproduction.baselines.brute_force import brute_force
from tensoropt.search import frontier_tracking
from tests.proofs import proof


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        *((family, 0) for family in FAMILIES),
        *(proof(family, seed) for family in FAMILIES for seed in (1, 2)),
    ],
)
def test_frontiers_are_those_of_enumeration(family: str, seed: int) -> None:
    problem = problem_of(family, seed)
    truth = brute_force(problem)
    for limits in LIMITS.values():
        found = frontier_tracking(problem, epsilon=0.002, limits=limits)
        assert what_is_wrong(problem, found, truth) is None


def test_what_is_wrong_is_said() -> None:
    problem = problem_of("tied", 1)
    truth = brute_force(problem)
    assert len(truth) > 2
    fewer = replace(
        truth, memory=truth.memory[1:], time=truth.time[1:], strategies=truth.strategies[1:]
    )
    assert what_is_wrong(problem, fewer, truth) == "not exact"
    assert what_is_wrong(problem, replace(fewer, exact=False, within=0.0), truth) is not None
    dearer = replace(truth, memory=truth.memory + 1)
    assert what_is_wrong(problem, dearer, truth) == "strategies cost something else"
