"""Batches, widths and tables that the devices do not divide, against one device."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tensoropt.parallel.choices import uneven
from tensoropt.parallel.choices.joined import joined_units
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import (
    Script,
    choices_of,
    draw,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.oracles.equality.scripts import mlp
from tests.oracles.equality.uneven_scripts import uneven_script

v1 = tf.compat.v1
BAR = 1e-10


def lookups(batch: int) -> Script:
    """A table of 23 rows with sparse gradients, whose row numbers are split as well."""
    graph = tf.Graph()
    with graph.as_default():
        words = v1.placeholder(tf.int32, [batch, 3], name="words")
        classes = v1.placeholder(tf.int32, [batch], name="classes")
        normal = v1.random_normal_initializer(seed=1)
        table = v1.get_variable("table", [23, 6], tf.float64, normal)
        rows = tf.nn.embedding_lookup(table, words)
        shifted = tf.nn.embedding_lookup(table, 22 - words)
        state = tf.concat([tf.reduce_max(rows, 1), tf.reduce_mean(shifted, 1)], -1)
        scores = tf.matmul(state, v1.get_variable("scores", [12, 7], tf.float64, normal))
        labels = tf.one_hot(classes, 7, dtype=tf.float64)
        each = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        loss = tf.reduce_mean(each) + tf.reduce_sum(tf.nn.log_softmax(scores)) / 1000
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    random = np.random.default_rng(0)
    feeds = tuple(
        {
            "words": random.integers(9, size=(batch, 3)).astype(np.int32),
            "classes": random.integers(7, size=batch).astype(np.int32),
        }
        for _ in range(3)
    )
    return Script(graph, train.name, loss.name, feeds)


def joined(batch: int) -> Script:
    """Reshapes that join the batch with other dimensions, and part them again."""
    return uneven_script("joined", batch)


def normalised(batch: int) -> Script:
    """A small convolutional model with batch normalisation and dropout."""
    graph = tf.Graph()
    with graph.as_default():
        images = v1.placeholder(tf.float32, [batch, 5, 5, 3], name="images")
        kernel = v1.get_variable(
            "kernel", [3, 3, 3, 7], initializer=v1.random_normal_initializer(seed=1)
        )
        x = tf.nn.conv2d(images, kernel, 1, "SAME")
        x, _, _ = v1.nn.fused_batch_norm(x, tf.ones([7]), tf.zeros([7]))
        x = tf.nn.dropout(tf.nn.relu(x), rate=0.2, seed=3)
        x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), [batch, -1])
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(x, 1) - 2))
        train = v1.train.GradientDescentOptimizer(1e-4).minimize(loss)
    random = np.random.default_rng(0)
    feeds = tuple(
        {"images": random.normal(size=(batch, 5, 5, 3)).astype(np.float32)} for _ in range(2)
    )
    return Script(graph, train.name, loss.name, feeds)


@pytest.mark.parametrize(
    ("model", "devices"),
    [("mlp", 3), ("lookups", 3), ("lookups", 4), ("normalised", 4), ("joined", 4)],
)
def test_training_equals_one_device(
    model: str, devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uneven, "_LEAST_PER_DEVICE", 1)
    made = {
        "mlp": lambda: mlp(tf.float64, 3, 7, (48, 101, 53)),
        "lookups": lambda: lookups(7),
        "normalised": lambda: normalised(7),
        "joined": lambda: joined(7),
    }
    script = made[model]()
    batched = frozenset(script.feeds[0])
    units = joined_units(script.imported(), devices, batched)
    mesh = Mesh(Mesh.of(devices).axes, units=units)
    choices = choices_of(script, mesh, batched)
    random = np.random.default_rng(devices)
    drawn = draw(script.imported(), choices, mesh, random)
    if model == "joined":
        reshapes = [group for group in choices if script.imported()[group.leader].type == "Reshape"]
        assert units
        assert sum(len(group.options) > 1 for group in reshapes) > 10
    trained = train_parallel(script, mesh, drawn.numbers, random_prices(devices), batched)
    bar = 1e-5 if model == "normalised" else BAR
    assert worst_error(trained, train_plain(script)) <= bar, drawn
