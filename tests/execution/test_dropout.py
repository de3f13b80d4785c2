"""Training with dropout under random strategies, several sets of fetches interleaved."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.parallel.choices.choices import configurations_of
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import (
    Drawn,
    Script,
    choices_of,
    draw,
    executor_of,
    model_script,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.proofs import proof

v1 = tf.compat.v1
BATCH, WIDTH, HIDDEN, CLASSES = 24, 24, 48, 24
COUNTS = {2: 3, 4: 2, 6: 1}
STRATEGIES = [(n, number) for n, count in COUNTS.items() for number in range(count)]
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
BATCHED = frozenset({"x", "labels"})

tensoropt.enable_graph_mode()


def recorded_dropout(x: tf.Tensor, rate: float, seed: int) -> tf.Tensor:
    """The operators that ``tf.layers.dropout`` of TensorFlow 1 leaves in a graph."""
    with tf.name_scope("dropout"):
        noise = tf.raw_ops.RandomUniform(shape=tf.shape(x), dtype=x.dtype, seed=87, seed2=seed)
        noise = noise * tf.constant(1, x.dtype) + tf.constant(0, x.dtype)
        kept = tf.cast(tf.greater_equal(noise, tf.constant(rate, x.dtype)), x.dtype)
        return x * tf.constant(1 / (1 - rate), x.dtype) * kept


@functools.cache
def script(dtype: str) -> Script:
    random, graph = np.random.default_rng(3), tf.Graph()
    kind = tf.as_dtype(dtype)
    with graph.as_default():
        x = v1.placeholder(kind, [BATCH, WIDTH], name="x")
        labels = v1.placeholder(tf.int32, [BATCH], name="labels")
        shapes = ([WIDTH, HIDDEN], [HIDDEN, HIDDEN], [HIDDEN, CLASSES])
        first, second, third = (
            v1.get_variable(f"w{n}", shape, kind, v1.glorot_uniform_initializer(seed=n))
            for n, shape in enumerate(shapes)
        )
        values = recorded_dropout(tf.tanh(tf.matmul(x, first)), 0.25, 5)
        values = tf.nn.dropout(tf.tanh(tf.matmul(values, second)), rate=0.4, seed=6)
        tf.identity(tf.cast(tf.not_equal(values, 0), tf.int32), "mask")
        values = tf.nn.dropout(values, rate=0.2, noise_shape=[BATCH, 1], seed=7)
        noise = tf.random.truncated_normal([CLASSES], stddev=0.1, dtype=kind, seed=8)
        scores = tf.matmul(values, third) + noise
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        loss = tf.reduce_mean(each, name="loss")
        train = v1.train.MomentumOptimizer(0.2, 0.9).minimize(loss)
    feeds = tuple(
        {
            "x": random.normal(size=(BATCH, WIDTH)).astype(dtype),
            "labels": random.integers(CLASSES, size=BATCH).astype(np.int32),
        }
        for _ in range(4)
    )
    return Script(graph, train.name, loss.name, feeds)


Run = Callable[[Sequence[str], Sequence[str], dict[str, Any]], list[Any]]


def trained(own: Script, run: Run) -> list[Any]:
    """What the runs of a session return: steps, masks and losses in between, the variables."""
    found = []
    for number, feed in enumerate(own.feeds):
        if number % 3 == 1:
            found += run(["mask:0"], [], feed)
        if number % 3 == 2:
            found += run([own.loss, "mask:0"], [], feed)
        found += run([own.loss], [own.train], feed)
    return found + run(own.variables, [], {})


@functools.cache
def truth(dtype: str) -> list[Any]:
    own = script(dtype)
    with own.graph.as_default(), v1.Session(graph=own.graph) as session:

        def run(tensors: Sequence[str], operations: Sequence[str], feed: Any) -> list[Any]:
            named = {f"{name}:0": value for name, value in feed.items()}
            return list(session.run([list(tensors), list(operations)], named)[0])

        session.run(v1.global_variables_initializer())
        return trained(own, run)


@functools.cache
def drawn(devices: int, dtype: str, number: int) -> Drawn:
    own, mesh = script(dtype), Mesh.of(devices)
    choices = choices_of(own, mesh, BATCHED)
    return draw(own.imported(), choices, mesh, np.random.default_rng((devices, number)))


IN_SUITE = ((2, 0), (4, 1))  # both types


@pytest.mark.parametrize(
    ("devices", "number"),
    [*IN_SUITE, *(proof(*each) for each in STRATEGIES if each not in IN_SUITE)],
)
def test_training_equals_one_device(devices: int, number: int) -> None:
    dtype = ("float32", "float64")[number % 2]
    own, mesh = script(dtype), Mesh.of(devices)
    numbers = drawn(devices, dtype, number).numbers
    planned = configurations_of(choices_of(own, mesh, BATCHED), numbers)
    executor = executor_of(own.graph, mesh, planned, random_prices(number), BATCHED)

    def run(tensors: Sequence[str], operations: Sequence[str], feed: Any) -> list[Any]:
        values = executor.run(tensors, operations, feed)
        return [values[name] for name in tensors]

    found = trained(own, run)
    executor.close()
    for value, right in zip(found, truth(dtype), strict=True):
        assert np.max(np.abs(value - right)) <= TOLERANCE[dtype] * max(np.max(np.abs(right)), 1)


def test_the_random_operators_are_split() -> None:
    """Masks are split along each of their dimensions, in at least a third of the strategies."""
    graph = script("float64").imported()
    random = [op.name for op in graph if op.type in ("RandomUniform", "TruncatedNormal")]
    assert len(random) == 4
    split: dict[int, int] = {}
    for devices, number in STRATEGIES:
        choices = choices_of(script("float64"), Mesh.of(devices), BATCHED)
        planned = configurations_of(choices, drawn(devices, "float64", number).numbers)
        for dim in {d for name in random for d, axes in enumerate(planned[name].splits) if axes}:
            split[dim] = split.get(dim, 0) + 1
    assert set(split) == {0, 1}
    assert min(split.values()) >= len(STRATEGIES) / 3


@pytest.mark.proof
def test_a_transformer_with_dropout_equals_one_device() -> None:
    """Masks after the embeddings and after every sublayer."""
    own = model_script("transformer", tf.float64, 2, dropout=0.1)
    mesh, batched = Mesh.of(4), frozenset(own.feeds[0])
    graph = own.imported()
    choices = choices_of(own, mesh, batched)
    numbers = draw(graph, choices, mesh, np.random.default_rng(4)).numbers
    planned = configurations_of(choices, numbers)
    masks = [op.name for op in graph if op.type == "RandomUniform"]
    split = sum(any(planned[name].splits) for name in masks)
    assert len(masks) >= 6
    assert split >= len(masks) / 2
    found = train_parallel(own, mesh, numbers, random_prices(4), batched)
    assert worst_error(found, train_plain(own)) <= 1e-10
