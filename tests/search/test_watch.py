"""Searches that are watched: how far they are, and what an interruption leaves."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.report.progress_bar import delayed_progress_bar
from tensoropt.search import Frontier, Problem, frontier_tracking
from tensoropt.search.branching.branch_and_bound import branch_and_bound
from tensoropt.search.limits import DEFAULT_LIMITS, SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.watch import Watch, interruptible, keep
from tests.proofs import proof

Maker = Callable[[int], Problem]
Asks = Callable[[Problem], bool]
Covers = Callable[[Frontier, Frontier, float], bool]
Interrupting = Callable[..., Watch]

# Nothing is small enough to be solved whole: all rounds take place.
LARGE = SearchLimits(bounded_cells=0, few_cells=0)


@pytest.fixture
def problem(random_problem: Maker) -> Problem:
    return random_problem(1)


@pytest.mark.parametrize("places", [8, proof(1000)])
def test_an_interruption_leaves_strategies_and_their_gap(
    problem: Problem, interrupting: Interrupting, places: int
) -> None:
    told: list[str] = []
    with interrupting(told=told):
        branch_and_bound(problem, 1e-9, LARGE)
    truth = brute_force(problem)
    ended = 0
    for at in range(1, len(told) + 1, max(1, len(told) // places)):
        try:
            with interrupting(at) as watch:
                outcome = branch_and_bound(problem, 1e-9, LARGE)
        except KeyboardInterrupt:
            assert ended == 0  # before the first round there is nothing
            continue
        ended += 1
        assert watch.interrupted
        found = outcome.found
        assert truth.dominates(found)
        memory, time = problem.costs(found.strategies)
        assert np.array_equal(memory, found.memory)
        assert np.array_equal(time, found.time)
    assert ended or len(told) < 2


def test_frontier_tracking_ends_with_what_its_rounds_know(
    problem: Problem, interrupting: Interrupting
) -> None:
    told: list[str] = []
    with interrupting(told=told):
        frontier_tracking(problem, limits=LARGE)
    truth = brute_force(problem)
    for at in range(1, len(told) + 1):
        try:
            with interrupting(at):
                found = frontier_tracking(problem, limits=LARGE)
        except KeyboardInterrupt:
            continue
        assert truth.dominates(found)


def test_an_interruption_after_eliminations_leaves_no_frontier_that_is_said_to_be_exact(
    random_problem: Maker, not_negative: Asks, covers: Covers, interrupting: Interrupting
) -> None:
    limits = SearchLimits(bounded_cells=0, plain_states=0)
    interrupted = 0
    for seed in range(40):
        problem = random_problem(seed)
        if not not_negative(problem):
            continue
        truth = brute_force(problem)
        for at in range(2, 6):
            try:
                with interrupting(at) as watch:
                    found = frontier_tracking(problem, limits=limits)
            except KeyboardInterrupt:
                continue
            if watch.interrupted:
                interrupted += 1
                assert not found.exact
                assert found.within is None or covers(found, truth, found.within)
    assert interrupted > 10


def test_a_second_interruption_is_raised(problem: Problem) -> None:
    @interruptible
    def search() -> Outcome:
        keep(lambda: brute_force(problem))
        raise KeyboardInterrupt

    with Watch():
        assert search().found.same_costs(brute_force(problem))
        with pytest.raises(KeyboardInterrupt):
            search()


def test_nobody_watches(problem: Problem) -> None:
    assert len(branch_and_bound(problem, 0.001, DEFAULT_LIMITS).found) > 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_waits_a_second_on_a_terminal() -> None:
    now, stream = [0.0], Terminal()
    draw = delayed_progress_bar(stream, lambda: now[0])
    draw("eliminations", 1, 4)
    assert stream.getvalue() == ""
    draw("", 0, 0)
    assert stream.getvalue() == ""  # nothing to take away
    now[0] = 1.5
    draw("eliminations", 2, 4)
    assert "2/4" in stream.getvalue()
    shown = stream.getvalue()
    draw("eliminations", 3, 4)
    assert stream.getvalue() == shown  # ten times a second at most
    draw("", 0, 0)
    assert stream.getvalue() != shown


def test_progress_is_a_line_now_and_then_in_a_log() -> None:
    now, stream = [0.0], io.StringIO()
    draw = delayed_progress_bar(stream, lambda: now[0])
    for second in range(75):
        now[0] = float(second)
        draw("rounds of bounds", 1, 3)
    assert stream.getvalue().splitlines() == [
        f"tensoropt: searching strategies for {seconds} s (rounds of bounds, 1 of 3); Ctrl-C ends "
        "with the best so far"
        for seconds in (10, 70)
    ]
