"""Embeddings: sparse gradients under random strategies, against one device."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from benchmarks.equality import (
    Script,
    draw,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tensoropt.parallel.choices import strategy_choices
from tensoropt.parallel.mesh import Mesh

v1 = tf.compat.v1
train = v1.train

BATCHED = frozenset({"words", "labels"})
BATCH, LENGTH, WORDS, WIDTH, CLASSES = 12, 3, 24, 12, 12

assert tensoropt.gradients is not None  # graph mode on, gradients recorded


def script(optimizer: Any, resource: bool, tied: bool = False) -> Script:
    """A bag of words, most of which are in no step; repeated ones occur within each."""
    random = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        words = v1.placeholder(tf.int32, [None, LENGTH], name="words")
        labels = v1.placeholder(tf.int32, [None], name="labels")
        initializer = v1.random_normal_initializer(stddev=0.5, seed=1)
        table = v1.get_variable("table", [WORDS, WIDTH], tf.float64, initializer)
        bag = tf.reduce_sum(tf.nn.embedding_lookup(table, words), axis=1)
        if tied:
            logits = tf.matmul(bag, table, transpose_b=True)
        else:
            weights = v1.get_variable("weights", [WIDTH, CLASSES], tf.float64, initializer)
            logits = tf.matmul(bag, weights)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(each)
        operation = optimizer().minimize(loss)
    feeds = tuple(
        {
            "words": random.integers(8, size=(BATCH, LENGTH)).astype(np.int32) + 4 * step,
            "labels": random.integers(CLASSES, size=BATCH).astype(np.int32),
        }
        for step in range(3)
    )
    return Script(graph, operation.name, loss.name, feeds)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "gradient descent": lambda: train.GradientDescentOptimizer(0.5),
    "momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: train.AdamOptimizer(0.01),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "rmsprop": lambda: train.RMSPropOptimizer(0.01, momentum=0.9),
    "ftrl": lambda: train.FtrlOptimizer(0.1),
}


def check(written: Script, strategies: int = 3) -> None:
    truth = train_plain(written)
    mesh = Mesh.of(4)
    graph = written.imported()
    choices = strategy_choices(graph, mesh, BATCHED)
    random = np.random.default_rng(zlib.crc32(written.train.encode()))
    for number in range(strategies):
        drawn = draw(graph, choices, mesh, random)
        found = train_parallel(written, mesh, drawn.numbers, random_prices(number), BATCHED)
        assert worst_error(found, truth) <= 1e-10, drawn.numbers


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_embedding_trains_as_on_one_device(name: str, resource: bool) -> None:
    check(script(OPTIMIZERS[name], resource))


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_a_table_that_is_also_the_output_layer(resource: bool) -> None:
    check(script(OPTIMIZERS["adam"], resource, tied=True))
