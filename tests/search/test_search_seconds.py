"""Searches that a limit of seconds ends, anywhere: what they end with gets better and better."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest

from reproduction.baselines.brute_force import brute_force
from tensoropt.cost.cluster import load_cluster
from tensoropt.planner.request import Request
from tensoropt.planner.searches import frontier_search
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search import Frontier, Problem, frontier_tracking
from tensoropt.search.branching.branch_and_bound import branch_and_bound
from tensoropt.search.exact.edge_table import EdgeTable
from tensoropt.search.exact.through_edge import through_edge
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.table import Table
from tensoropt.search.watch import (
    Watch,
    interruptible,
    keep,
    look_at_clock,
    seconds_left,
    tell,
    was_interrupted,
)
from tests.proofs import proof

Maker = Callable[[int], Problem]
Covers = Callable[[Frontier, Frontier, float], bool]
Search = Callable[[Problem], Frontier]

LOOKS = 60
LIMITS = SearchLimits(bounded_cells=0, plain_states=0)
# Nothing is small enough to be solved whole: all rounds take place, and parts are divided.
ROUNDS = replace(LIMITS, exact_states=0)
MANY_CELLS = replace(ROUNDS, few_cells=0)
SEARCHES: dict[str, Search] = {
    "exact": partial(frontier_tracking, limits=LIMITS),
    "too many points": partial(frontier_tracking, limits=replace(ROUNDS, exact_points=40)),
    "many cells": partial(frontier_tracking, limits=MANY_CELLS),
    "epsilon": partial(frontier_tracking, epsilon=0.001, limits=ROUNDS),
    "first phase": lambda problem: branch_and_bound(problem, 1e-9, ROUNDS, divides=False).found,
    "branching": lambda problem: branch_and_bound(problem, 0.0005, ROUNDS).found,
}


def second_by_second() -> Callable[[], float]:
    """A clock that advances by a second each time it is read."""
    return count().__next__


def ended(search: Search, problem: Problem) -> Iterator[Frontier]:
    """What a search ends with after more and more seconds, the last one being its own end."""
    for seconds in range(1, LOOKS):
        with Watch(seconds=seconds, clock=second_by_second()) as watch:
            yield search(problem)
        if not watch.timed_out:
            return


@pytest.mark.parametrize(
    ("name", "seed"),
    [*((name, 9) for name in SEARCHES), *(proof(name, 7) for name in SEARCHES)],
)
def test_more_seconds_are_never_worse(
    name: str, seed: int, positive_problem: Maker, covers: Covers
) -> None:
    problem = positive_problem(seed)
    truth = brute_force(problem)
    before: Frontier | None = None
    early = 0
    for found in ended(SEARCHES[name], problem):
        memory, time = problem.costs(found.strategies)
        assert np.array_equal(memory, found.memory)
        assert np.array_equal(time, found.time)
        assert found.within is None or covers(found, truth, found.within)
        if before is not None:
            early += 1
            assert found.dominates(before)
            assert before.within is None or found.is_within(before.within)
        before = found
    assert early


def test_plans_are_of_what_time_has_left(
    graph_problem_of: Callable[[str, int], GraphProblem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search of a request, on one mesh."""
    problem = graph_problem_of("layers", 4)
    monkeypatch.setattr(frontier_search, "problem_of", lambda *_: problem)
    monkeypatch.setattr(frontier_search, "_limits", lambda _: MANY_CELLS)
    cluster = load_cluster("8-v100")
    request = Request(
        graph=problem.graph,
        cluster_at=lambda _: cluster,
        devices=4,
        roots=(),
        shapes={},
        batch_placeholders=frozenset({"x"}),
    )
    _, whole = frontier_search.search_frontier(request, 4)
    assert whole.ended_by == ""
    _, soon = frontier_search.search_frontier(replace(request, search_seconds=1e-9), 4)
    assert soon.ended_by == "time"
    assert not soon.exact
    assert whole.dominates(soon)


def test_time_ends_no_search_that_has_no_frontier(positive_problem: Maker) -> None:
    truth = brute_force(positive_problem(1))

    @interruptible
    def last_resort() -> Outcome:
        keep(truth, last_resort=True)
        tell("nothing", 0, 1)
        look_at_clock()
        return Outcome(None)

    @interruptible
    def outer() -> Outcome:
        assert last_resort().frontier is None
        keep(truth)
        last_resort()  # its time is over, and the outer search has something
        raise AssertionError

    with Watch(seconds=0, clock=second_by_second()) as watch:
        assert outer().found is truth
        assert was_interrupted()
    assert watch.ended_by == "time"


def test_time_ends_a_search_within_an_elimination(positive_problem: Maker) -> None:
    """One elimination may have products of millions of points."""
    truth = brute_force(positive_problem(1))
    one = np.array([0])
    points = Table(np.array([0, 2]), np.array([1, 2]), np.array([5, 3]), np.zeros(2, np.int64))
    edge = EdgeTable(one, one, 1, 1, points, np.zeros((1, 0)), np.zeros((1, 0)))

    @interruptible
    def search() -> Outcome:
        through_edge(points, one, one, 1, edge, BackPointers())  # nothing to end with
        keep(truth)
        through_edge(points, one, one, 1, edge, BackPointers())
        raise AssertionError

    with Watch(seconds=0, clock=second_by_second()) as watch:
        assert search().found is truth
    assert watch.ended_by == "time"


def test_each_search_of_several_has_its_seconds(positive_problem: Maker) -> None:
    """An interruption is one for all of them: the second is raised."""
    truth = brute_force(positive_problem(1))

    @interruptible
    def search(press: bool) -> Outcome:
        keep(truth)
        if press:
            raise KeyboardInterrupt
        tell("rounds", 0, 1)
        return Outcome(None)

    told: list[str] = []
    with Watch(lambda what, *_: told.append(what)) as all_:
        with Watch(seconds=2, clock=second_by_second()) as first:
            assert search(press=False).frontier is None
        assert (first.ended_by, all_.timed_out) == ("", False)
        with Watch(seconds=1, clock=second_by_second()) as second:
            assert search(press=False).found is truth
        assert (second.ended_by, all_.timed_out) == ("time", True)
        with Watch() as third:
            assert not was_interrupted()
            assert search(press=True).found is truth
        assert (third.ended_by, all_.interrupted) == ("interruption", True)
        with Watch(), pytest.raises(KeyboardInterrupt):
            search(press=True)
    assert told == ["rounds", "rounds"]


def test_a_search_of_several_ends_when_the_time_of_all_is_over(positive_problem: Maker) -> None:
    truth = brute_force(positive_problem(1))

    @interruptible
    def search() -> Outcome:
        keep(truth)
        tell("rounds", 0, 1)
        return Outcome(None)

    assert seconds_left() == np.inf
    clock = second_by_second()
    with Watch(seconds=7, clock=clock) as all_:
        assert seconds_left() == 6
        with Watch(seconds=100) as first:  # by the same clock
            assert search().frontier is None
        assert (first.ended_by, seconds_left()) == ("", 3)
        with Watch(seconds=100) as second:
            assert search().frontier is None
            assert search().found is truth
        assert (second.ended_by, all_.ended_by) == ("time", "time")
        assert seconds_left() == 0


def test_a_search_ends_where_the_rest_is_not_worth_it(positive_problem: Maker) -> None:
    truth = brute_force(positive_problem(1))
    looks: list[float] = []

    @interruptible
    def search() -> Outcome:
        keep(lambda: truth, gap=0.5)
        for gap in (0.1, 0.05, 0.04, 0.03):
            looks.append(gap)
            for _ in range(3):
                tell("nothing", 0, 1)
            keep(lambda: truth, gap=gap)
        return Outcome(truth)

    def ended(worth: Callable[[float], float]) -> Watch:
        looks.clear()
        with Watch(seconds=50, worth=worth, clock=second_by_second()) as watch:
            assert search().found is truth
        return watch

    watch = ended(lambda gap: 100 * gap)
    assert (watch.timed_out, watch.was_not_worth, looks) == (True, True, [0.1, 0.05, 0.04])
    watch = ended(lambda gap: 1000 * gap)
    assert (watch.timed_out, watch.was_not_worth, looks) == (False, False, [0.1, 0.05, 0.04, 0.03])
