"""The peaks that a plan states of its frontier, against dry runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensoropt as tf
from benchmarks.search.zoo.measuring import request_of_script
from tensoropt.cost.cluster import load_cluster
from tensoropt.planner.choose import choose
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.prices.frontier_peaks import OPERATORS, FrontierPeaks, all_peaks
from tensoropt.planner.prices.peak import evenly, predicted_peak
from tensoropt.planner.searches.frontier_search import search_frontier

DEVICES = 4


def convolutions() -> None:
    values = tf.placeholder(tf.float32, [None, 16, 16, 4])
    for number, channels in enumerate((16, 32)):
        filters = tf.get_variable(f"filters{number}", [3, 3, int(values.shape[-1]), channels])
        bias = tf.get_variable(f"bias{number}", [channels])
        values = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(values, filters, 1, "SAME"), bias))
        values = tf.nn.max_pool2d(values, 2, 2, "SAME")
    scores = tf.matmul(tf.reshape(values, [-1, 512]), tf.get_variable("dense", [512, 8]))
    train(scores)


def looked_up() -> None:
    words = tf.placeholder(tf.int32, [None, 8])
    table = tf.get_variable("table", [4096, 32])
    scores = tf.reduce_sum(tf.nn.embedding_lookup(table, words), 1)
    train(tf.matmul(tf.tanh(scores), tf.get_variable("dense", [32, 2048])))


def train(scores: object) -> None:
    labels = tf.placeholder(tf.int32, [None])
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(loss))


@pytest.mark.parametrize(("build", "most"), [(convolutions, 1.05), (looked_up, 1.05)])
def test_dry_runs_take_about_what_is_stated(build: Callable[[], None], most: float) -> None:
    request = request_of_script(build, 32, load_cluster("8-v100"), DEVICES)
    problem, frontier = search_frontier(request, DEVICES)
    peaks = FrontierPeaks(request, problem, frontier)
    peaks.estimate(OPERATORS)
    stated = peaks.of_all_points()
    ratios = []
    for number in evenly(len(frontier), 4):
        found = predicted_peak(request, problem, frontier.strategies[number].tolist())
        assert found.from_dry_run
        peak = stated[number]
        assert peak is not None
        ratios.append(found.bytes / peak.bytes)
    assert max(ratios) <= most
    assert min(ratios) >= 0.75
    assert np.all(np.diff(evenly(1000, 23)) > 0)


@pytest.mark.parametrize("build", [convolutions, looked_up])
def test_the_shown_frontier_rises_in_memory_and_falls_in_time(build: Callable[[], None]) -> None:
    request = request_of_script(build, 32, load_cluster("8-v100"), DEVICES)
    plan = choose(request, "mini_time")
    memory, time = np.array(plan.points).T
    assert np.all(np.diff(memory) > 0)
    assert np.all(np.diff(time) < 0)
    assert [peak.bytes for peak in plan.frontier_peaks if peak] == memory.tolist()
    offer = Strategies(request, *search_frontier(request, DEVICES))  # the only one
    assert set(plan.frontier) <= set(offer.points)
    assert plan.frontier[-1] == offer.points[-1]
    assert plan.point is not None
    assert plan.frontier[plan.point] == (plan.memory_bytes, plan.executed_nanoseconds)
    assert plan.frontier_peaks[plan.point] == (plan.peak_bytes, "dry run")


sums = st.lists(st.integers(1, 10**12), min_size=1, max_size=9, unique=True).map(sorted)


@given(st.data(), sums)
def test_peaks_of_all_points_follow_those_that_are_known(data: Any, sums: list[int]) -> None:
    numbers = st.integers(0, len(sums) - 1)
    ratios = st.floats(0.5, 3)
    some = data.draw(st.dictionaries(numbers, ratios))
    estimates = {number: round(ratio * sums[number]) + 1 for number, ratio in some.items()}
    runs = {number: sums[number] for number in data.draw(st.sets(numbers))}
    runs = {number: size for number, size in runs.items() if not estimates or number in estimates}
    found = all_peaks(np.array(sums), estimates, runs)
    if not estimates and not runs:
        assert found == [None] * len(sums)
        return
    for number, peak in enumerate(found):
        assert peak is not None
        if number in runs:
            assert peak == (runs[number], "dry run")
        elif number in estimates:
            assert peak.source == "estimate"
            if not runs:
                assert peak.bytes == pytest.approx(estimates[number], rel=1e-9, abs=1)
        else:
            assert peak.source == "interpolation"
            if not runs:
                known = [estimates[n] / sums[n] for n in estimates]
                assert min(known) * 0.999 <= peak.bytes / sums[number] + 1
                assert peak.bytes <= max(known) * 1.001 * sums[number] + 1


def test_a_dry_run_corrects_the_estimates() -> None:
    found = all_peaks(np.array([100, 150, 200]), {0: 200, 2: 400}, {2: 300})
    assert found == [(150, "estimate"), (225, "interpolation"), (300, "dry run")]
