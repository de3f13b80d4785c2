"""Splits that are spelled out, under random strategies, against plain TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.execution.native.library import SWITCH, batch_norm_operators
from tensoropt.execution.rules import RULES
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices.choices import configurations_of, strategy_choices
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_under
from tensoropt.tdl import described, operator_type
from tests.oracles.equality import (
    Script,
    draw,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.proofs import proof

v1 = tf.compat.v1

tensoropt.enable_graph_mode()


def _labelled(scores: Any, labels: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)


def _entropy(scores: Any, labels: Any) -> Any:
    return tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=scores)


def test_the_rules_of_all_operator_types_exist() -> None:
    assert {operator_type(each).rule for each in described()} == {None, *RULES}


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "sparse cross entropy": lambda z, y: tf.reduce_mean(_labelled(z, y)),
    "cross entropy": lambda z, y: tf.reduce_mean(_entropy(z, tf.one_hot(y, 24, dtype=z.dtype))),
    "cross entropy, labels learn": lambda z, y: tf.reduce_mean(_entropy(z, tf.nn.softmax(2 * z))),
    "softmax": lambda z, y: tf.reduce_mean(tf.square(tf.nn.softmax(z)) * z),
    "log softmax": lambda z, y: tf.reduce_mean(tf.square(tf.nn.log_softmax(z))),
    "max with ties": lambda z, y: tf.reduce_sum(tf.reduce_max(tf.nn.relu(z - 1.0), axis=1)),
    "min with ties": lambda z, y: tf.reduce_mean(tf.reduce_min(tf.nn.relu(z), axis=0)),
    "prod with zeros": lambda z, y: tf.reduce_sum(tf.reduce_prod(tf.nn.relu(z) + z, axis=[0])),
    "mean": lambda z, y: tf.reduce_sum(tf.square(tf.reduce_mean(z, axis=1))),
}


def dense_script(loss_of: Callable[[Any, Any], Any]) -> Script:
    graph = tf.Graph()
    random = np.random.default_rng(0)
    with graph.as_default():
        x = v1.placeholder(tf.float64, [8, 12], name="x")
        y = v1.placeholder(tf.int32, [8], name="y")
        w = v1.get_variable("w", [12, 24], tf.float64, v1.glorot_uniform_initializer(seed=1))
        loss = loss_of(tf.matmul(x, w), y)
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    feeds = tuple(
        {"x": random.normal(size=(8, 12)), "y": random.integers(24, size=8).astype(np.int32)}
        for _ in range(3)
    )
    return Script(graph, train.name, loss.name, feeds)


def normalised_script(penalised: bool = False) -> Script:
    """Training through a batch normalisation; penalised, through its gradient, too."""
    graph = tf.Graph()
    random = np.random.default_rng(0)
    shape = [8, 4, 4, 6]
    with graph.as_default():
        x = v1.placeholder(tf.float32, shape, name="x")
        pre = v1.get_variable("pre", shape[1:], initializer=v1.glorot_uniform_initializer(seed=2))
        scale = v1.get_variable("scale", [6], initializer=v1.ones_initializer())
        offset = v1.get_variable("offset", [6], initializer=v1.zeros_initializer())
        mean = v1.get_variable("mean", [6], initializer=v1.zeros_initializer(), trainable=False)
        variance = v1.get_variable("var", [6], initializer=v1.ones_initializer(), trainable=False)
        y, m, v = v1.nn.fused_batch_norm(x * (1.0 + pre), scale, offset, epsilon=1e-3)
        updates = [
            v1.assign(mean, mean * 0.9 + m * 0.1),
            v1.assign(variance, variance * 0.9 + v * 0.1),
        ]
        loss = tf.reduce_mean(tf.square(y - 0.3) * tf.nn.relu(y))
        if penalised:
            (by_images,) = v1.gradients(loss, [x])
            loss += 3.0 * tf.reduce_sum(tf.square(by_images))
        with tf.control_dependencies(updates):
            train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    feeds = tuple({"x": random.normal(size=shape).astype(np.float32)} for _ in range(3))
    return Script(graph, train.name, loss.name, feeds)


def check(script: Script, operator_type: str, tolerance: float, counts: Sequence[int]) -> None:
    """A strategy on each number of devices, with the operator's spelled-out split."""
    batched = frozenset(script.feeds[0])
    truth = train_plain(script)
    graph = script.imported()
    random = np.random.default_rng(5)
    for number, devices in enumerate(counts):
        mesh = Mesh.of(devices)
        choices = strategy_choices(graph, mesh, batched)
        numbers = draw(graph, choices, mesh, random).numbers
        while not _spells_out(graph, configurations_of(choices, numbers), operator_type):
            numbers = draw(graph, choices, mesh, random).numbers
        found = train_parallel(script, mesh, numbers, random_prices(number), batched)
        assert worst_error(found, truth) <= tolerance, numbers


def _spells_out(graph: Graph, chosen: dict[str, Configuration], operator_type: str) -> bool:
    """Whether a strategy splits operators of a type so that they need a rule."""
    return any(
        axes and (index.spelled_out or index.reducer is not None)
        for name, configuration in chosen.items()
        if graph[name].type == operator_type
        for index, axes in zip(
            derivation_under(graph[name], configuration).indices, configuration.splits, strict=True
        )
    )


TYPES = {
    "sparse cross entropy": "SparseSoftmaxCrossEntropyWithLogits",
    "cross entropy": "SoftmaxCrossEntropyWithLogits",
    "cross entropy, labels learn": "SoftmaxCrossEntropyWithLogits",
    "softmax": "Softmax",
    "log softmax": "LogSoftmax",
    "max with ties": "Max",
    "min with ties": "Min",
    "prod with zeros": "Prod",
    "mean": "Mean",
}


@pytest.mark.parametrize(
    ("name", "counts"),
    [*((name, (4,)) for name in LOSSES), *(proof(name, (2, 4)) for name in LOSSES)],
)
def test_splits_of_what_is_reduced(name: str, counts: tuple[int, ...]) -> None:
    check(dense_script(LOSSES[name]), TYPES[name], 1e-10, counts)


@pytest.mark.parametrize(
    ("penalised", "native", "counts"),
    [(False, "0", (4,)), (True, "1", (2,)), proof(False, "0", (2, 4)), proof(True, "1", (2, 4))],
)
def test_batch_normalisation_takes_the_whole_batch(
    penalised: bool, native: str, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, native)
    batch_norm_operators.cache_clear()
    try:
        check(normalised_script(penalised), "FusedBatchNormV3", 1e-4, counts)
    finally:
        batch_norm_operators.cache_clear()
