"""Alpa's integer program has the least time of all strategies."""

from __future__ import annotations

from collections.abc import Callable

from reproduction.baselines import integer_program
from reproduction.baselines.brute_force import brute_force
from tensoropt.search import Problem


def test_the_integer_program_finds_the_least_time(random_problem: Callable[[int], Problem]) -> None:
    for seed in range(20):
        problem = random_problem(seed)
        found = integer_program.solve(problem, gap=0.0)
        assert found.time[0] == brute_force(problem).time.min()
