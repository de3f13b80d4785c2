"""The peaks that a plan states of its frontier, against dry runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tensoropt as tf
from benchmarks.search.zoo.measuring import request_of_script
from tensoropt.cost.cluster import load_cluster
from tensoropt.planner.choose import choose
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
    stated = dict(choose(request, "mini_time").frontier_peaks)
    problem, frontier = search_frontier(request, DEVICES)
    assert set(stated) <= set(frontier.memory.tolist())
    ratios = []
    for number in evenly(len(frontier), 4):
        found = predicted_peak(request, problem, frontier.strategies[number].tolist())
        assert found.from_dry_run
        nearest = min(stated, key=lambda memory: abs(memory - int(frontier.memory[number])))
        if nearest == frontier.memory[number]:
            ratios.append(found.bytes / stated[nearest])
    assert len(ratios) >= 2
    assert max(ratios) <= most
    assert min(ratios) >= 0.75
    assert np.all(np.diff(evenly(1000, 23)) > 0)
