"""Scripts of many operators under random strategies: what descriptions allow, emission does."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.parallel.choices.choices import strategy_choices
from tensoropt.parallel.mesh import Mesh
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
BATCH, SIDE, CHANNELS, CLASSES = 8, 8, 4, 8

tensoropt.enable_graph_mode()


def variable(name: str, *shape: int) -> tf.Tensor:
    initializer = v1.random_normal_initializer(stddev=0.4, seed=3)
    found: tf.Tensor = v1.get_variable(name, shape, tf.float64, initializer)
    return found


def convolutions(x: tf.Tensor) -> tf.Tensor:
    """Convolutions of every kind, pooling, normalisation with given statistics."""
    h = tf.nn.conv2d(x, variable("first", 3, 3, CHANNELS, 8), 1, "SAME")
    h = tf.nn.relu(tf.nn.bias_add(h, variable("bias", 8)))
    h = tf.nn.depthwise_conv2d(h, variable("depthwise", 3, 3, 8, 2), [1, 1, 1, 1], "SAME")
    h = tf.nn.max_pool2d(h, 2, 2, "VALID") + tf.nn.avg_pool2d(h, 2, 2, "VALID")
    h = tf.nn.conv2d(h, variable("second", 1, 1, 16, 8), 2, "SAME")
    h = tf.nn.conv2d_transpose(h, variable("up", 3, 3, 4, 8), [BATCH, 4, 4, 4], 2, "SAME")
    return tf.reduce_mean(h * variable("gain", 4), axis=[1, 2])


def movement(x: tf.Tensor) -> tf.Tensor:
    """Slices, joins, paddings, repetitions: shapes in operands."""
    rows = tf.reshape(x, [BATCH, SIDE, SIDE * CHANNELS])
    left, right = tf.split(rows, 2, axis=2)
    h = tf.concat([left * 2.0, tf.reverse(right, [2])], axis=2)
    h = tf.pad(h, [[0, 0], [1, 0], [0, 0]])[:, 1:, ::2]
    h = tf.tile(h[:, tf.newaxis, :, :], [1, 2, 1, 1]) * tf.fill(
        [BATCH, 1, 1, 16], tf.cast(0.5, x.dtype)
    )
    h = tf.stack([h, tf.cumsum(h, axis=2)], axis=1)
    first, second = tf.unstack(h, axis=1)
    h = tf.slice(first * second, [0, 0, 0, 2], [-1, -1, -1, 8])
    h = h + tf.broadcast_to(variable("shift", 8), [BATCH, 2, SIDE, 8])
    h = tf.einsum("bsyc,cd->byd", h, variable("mix", 8, 8))
    return tf.squeeze(tf.reduce_sum(h, axis=1, keepdims=True), 1)


def indexed(x: tf.Tensor) -> tf.Tensor:
    """Lookups at positions that data decide, matrices, images."""
    h = tf.reshape(tf.image.resize(x, [4, 4]), [BATCH, 16, CHANNELS])
    h = tf.cast(h, x.dtype)
    h = tf.gather(h, [3, 1, 1, 0, 9, 15, 2, 8], axis=1)
    best, _ = tf.math.top_k(tf.transpose(h, [0, 2, 1]), 4)
    square = tf.matmul(best, best, transpose_a=True) + 3 * tf.eye(4, dtype=x.dtype)
    solved = tf.linalg.solve(square, tf.linalg.band_part(best, 1, 1))
    summed = tf.math.unsorted_segment_sum(solved, [0, 2, 1, 0, 2, 1, 3, 3], 4)
    spread = tf.gather(summed, [0, 1, 2, 3, 3, 2, 1, 0])
    return tf.reshape(spread, [BATCH, 16])


def script(body: Callable[[tf.Tensor], tf.Tensor]) -> Script:
    random = np.random.default_rng(1)
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=True):
        x = v1.placeholder(tf.float64, [BATCH, SIDE, SIDE, CHANNELS], name="x")
        labels = v1.placeholder(tf.int32, [BATCH], name="labels")
        features = body(x)
        logits = tf.matmul(features, variable("last", int(features.shape[1]), CLASSES))
        losses = tf.nn.softmax_cross_entropy_with_logits(
            labels=tf.one_hot(labels, CLASSES, dtype=tf.float64), logits=logits
        )
        loss = tf.reduce_mean(losses)
        operation = v1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    feeds = tuple(
        {
            "x": random.normal(size=(BATCH, SIDE, SIDE, CHANNELS)),
            "labels": random.integers(CLASSES, size=BATCH).astype(np.int32),
        }
        for _ in range(2)
    )
    return Script(graph, operation.name, loss.name, feeds)


@pytest.mark.parametrize("body", [convolutions, indexed, proof(movement)])
def test_training_equals_one_device(body: Any) -> None:
    written = script(body)
    truth = train_plain(written)
    mesh, batched = Mesh.of(4), frozenset({"x", "labels"})
    graph = written.imported()
    choices = strategy_choices(graph, mesh, batched)
    random = np.random.default_rng(zlib.crc32(body.__name__.encode()))
    for number in range(3):
        drawn = draw(graph, choices, mesh, random)
        found = train_parallel(written, mesh, drawn.numbers, random_prices(number), batched)
        assert worst_error(found, truth) <= 1e-9, drawn.numbers
