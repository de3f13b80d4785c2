"""How long ``find_strategy`` searches: ``epsilon``, ``search_seconds``, many devices."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tensoropt as tf
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.limits import SearchLimits
from tensoropt.search.outcome import Outcome
from tensoropt.search.solvers import solver
from tensoropt.search.watch import keep, tell

Regression = tuple[Any, Any, Any, Any]


def test_a_plan_says_how_near_its_frontier_is(regression: Regression, tmp_path: Path) -> None:
    tf.init(devices=4, cluster="2x8-v100")
    exact = tf.find_strategy(batch_size=8)
    assert (exact.epsilon, exact.within) == (0.0, 0.0)
    near = tf.find_strategy(batch_size=8, epsilon=0.1)
    assert near.epsilon == 0.1
    assert near.within is not None
    assert near.within <= 0.1
    for memory, time in exact.frontier:
        assert any(m <= 1.1 * memory and t <= 1.1 * time for m, t in near.frontier)
    near.save(tmp_path / "plan.json")
    assert tf.Plan.load(tmp_path / "plan.json") == near


def test_a_note_has_the_proven_gap_where_it_is_smaller_than_asked_for(
    regression: Regression, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = SearchLimits(bounded_cells=0, plain_states=0)
    monkeypatch.setattr("tensoropt.planner.searches.frontier_search._limits", lambda _: limits)
    tf.init(devices=4, cluster="2x8-v100")
    near = tf.find_strategy(batch_size=8, epsilon=0.5)
    assert near.within is not None
    assert 0 < near.within < 0.5
    gap = f"approximate frontier, proven gap {100 * near.within:.2g} % (epsilon=0.5)"
    assert [note for note in near.notes if "frontier" in note] == [gap]


@pytest.mark.parametrize("epsilon", [-0.1, math.nan])
def test_epsilon_is_not_negative(regression: Regression, epsilon: float) -> None:
    tf.init(devices=4)
    with pytest.raises(tf.errors.OptionError, match="epsilon is at least 0"):
        tf.find_strategy(batch_size=8, epsilon=epsilon)


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, True, "30"])
def test_search_seconds_are_above_0(regression: Regression, seconds: Any) -> None:
    tf.init(devices=4)
    with pytest.raises(tf.errors.OptionError, match=r"search_seconds is a number above 0, or None"):
        tf.find_strategy(batch_size=8, search_seconds=seconds)


def test_a_search_ends_after_its_seconds(
    regression: Regression, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def endless(problem: GraphProblem, epsilon: float, _: SearchLimits) -> Outcome:
        found = solver("ft")(problem, epsilon=epsilon).found
        keep(replace(found, exact=False, within=0.007))
        while True:
            tell("nothing", 0, 1)

    monkeypatch.setattr("tensoropt.planner.searches.frontier_search.solver", lambda _: endless)
    tf.init(devices=4, cluster="2x8-v100")
    plan = tf.find_strategy(batch_size=8, search_seconds=0.01)
    assert not plan.exact
    note = "approximate frontier, proven gap 0.7 %; search_seconds=... allows more"
    assert [each for each in plan.notes if "frontier" in each] == [note]
    assert "tensoropt: search_seconds ended a search" in capsys.readouterr().err


def test_epsilon_is_for_frontier_tracking(regression: Regression) -> None:
    tf.init(devices=4)
    with pytest.raises(tf.errors.OptionError, match="epsilon is for algorithm='ft'"):
        tf.find_strategy(batch_size=8, algorithm="tofu", epsilon=0.1)


def test_many_devices_are_searched_on_fewer_axes(regression: Regression) -> None:
    tf.init(devices=192)
    plan = tf.find_strategy(batch_size=384)
    assert math.prod(plan.mesh_axes) == plan.devices == 192
    assert len(plan.mesh_axes) == 5
    assert any("192 devices were searched on a mesh of 5 axes" in note for note in plan.notes)
    parallel = tf.find_strategy(batch_size=384, algorithm="data_parallel")
    assert plan.time_nanoseconds <= parallel.time_nanoseconds
