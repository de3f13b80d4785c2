"""Scripts of sequences padded to another length in each batch, and their data parallelism."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from tensoropt.graph.operator import TensorName
from tensoropt.graph.tied_operators import leaders
from tensoropt.parallel.configuration import Configuration, fitted
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of
from tests.oracles.equality.engine import Script

__all__ = ["BATCHED", "PADDED", "data_parallel"]

v1 = tf.compat.v1
BATCH, WORDS, WIDTH, HEADS = 8, 24, 16, 4
BATCHED = frozenset({"words", "targets", "lengths"})
LENGTHS = (8, 12, 5, 16, 7, 1, 12)


def _normalised(x: tf.Tensor) -> tf.Tensor:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-6)


def _weights(name: str, shape: list[int]) -> tf.Tensor:
    seed = sum(map(ord, name))
    return v1.get_variable(name, shape, tf.float64, v1.glorot_uniform_initializer(seed=seed))


def _attention(x: tf.Tensor, mask: tf.Tensor, name: str) -> tf.Tensor:
    """Attention as many scripts write it: dense layers on [batch * length, width], and heads by
    transposes."""
    length, size = tf.shape(x)[1], WIDTH // HEADS
    flat = tf.reshape(x, [-1, WIDTH])
    parts = []
    for part in "qkv":
        made = tf.matmul(flat, _weights(f"{name}_{part}", [WIDTH, WIDTH]))
        heads = tf.reshape(made, [tf.shape(x)[0], length, HEADS, size])
        parts.append(tf.transpose(heads, [0, 2, 1, 3]))
    scores = tf.matmul(parts[0], parts[1], transpose_b=True) * size**-0.5 + mask
    mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), parts[2]), [0, 2, 1, 3])
    mixed = tf.reshape(mixed, [BATCH * length, WIDTH])
    mixed = tf.nn.bias_add(
        tf.matmul(mixed, _weights(f"{name}_o", [WIDTH, WIDTH])), _weights(f"{name}_b", [WIDTH])
    )
    return tf.reshape(mixed, tf.shape(x))


@functools.cache
def _transformer() -> Script:
    graph = tf.Graph()
    with graph.as_default():
        words = v1.placeholder(tf.int32, [BATCH, None], name="words")
        lengths = v1.placeholder(tf.int32, [BATCH], name="lengths")
        inputs, targets = words[:, :-1], words[:, 1:]
        length = tf.shape(inputs)[1]
        table = _weights("table", [WORDS, WIDTH])
        places = tf.cast(tf.range(length), tf.float64)[:, None] / np.arange(1.0, WIDTH + 1)
        x = tf.nn.embedding_lookup(table, inputs) + tf.sin(places)
        x = tf.nn.dropout(x, rate=0.2, seed=3)
        future = (1 - tf.linalg.band_part(tf.ones([length, length], tf.float64), -1, 0)) * -1e9
        real = tf.sequence_mask(lengths, length, dtype=tf.float64)
        mask = future + (1 - real[:, None, None, :]) * -1e9
        for layer in range(2):
            x = _normalised(x + _attention(x, mask, f"attention{layer}"))
            inner = tf.nn.relu(tf.einsum("btd,df->btf", x, _weights(f"in{layer}", [WIDTH, 32])))
            outer = tf.tensordot(inner, _weights(f"out{layer}", [32, WIDTH]), 1)
            x = _normalised(x + tf.nn.dropout(outer, rate=0.1, seed=layer))
        scores = tf.einsum("btd,vd->btv", x, _weights("scores", [WORDS, WIDTH]))
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=scores)
        loss = tf.reduce_sum(each * real) / tf.reduce_sum(real)
        train = v1.train.AdamOptimizer(0.01).minimize(loss)
    random = np.random.default_rng(1)
    feeds = []
    for length in LENGTHS:
        feeds.append(
            {
                "words": random.integers(WORDS, size=(BATCH, length + 1)).astype(np.int32),
                "lengths": random.integers(1, length + 1, size=BATCH).astype(np.int32),
            }
        )
    return Script(graph, train.name, loss.name, tuple(feeds))


@functools.cache
def _averages() -> Script:
    """Words looked up in a table with sparse gradients, averaged over a padded length."""
    graph = tf.Graph()
    with graph.as_default():
        words = v1.placeholder(tf.int32, [BATCH, None], name="words")
        targets = v1.placeholder(tf.int32, [BATCH], name="targets")
        rows = tf.nn.embedding_lookup(_weights("table", [200, WIDTH]), words)
        rows = tf.concat([rows, tf.zeros([BATCH, tf.shape(words)[1], 8], tf.float64)], -1)
        state = tf.reduce_max(tf.tanh(rows), 1) + tf.reduce_mean(rows, 1)
        scores = tf.matmul(state, _weights("scores", [WIDTH + 8, WORDS]))
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=scores)
        loss = tf.reduce_mean(each)
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    random = np.random.default_rng(2)
    feeds = tuple(
        {
            "words": random.integers(200, size=(BATCH, length)).astype(np.int32),
            "targets": random.integers(WORDS, size=BATCH).astype(np.int32),
        }
        for length in LENGTHS
    )
    return Script(graph, train.name, loss.name, feeds)


PADDED = {"transformer": _transformer, "averages": _averages}


def data_parallel(script: Script, mesh: Mesh) -> dict[str, Configuration]:
    """Data parallelism: operators that depend on placeholders are split along the batch. Variables
    and operators with the variables' layouts are whole."""
    axes = tuple(range(len(mesh.axes)))
    batches = {(TensorName(name, 0), 0) for name in BATCHED}
    planned = {}
    graph = script.imported()
    tied = leaders(graph)
    for operator in graph:
        derivation = derivation_of(operator)
        read = {
            n
            for i, numbers in enumerate(derivation.inputs)
            for dim, n in enumerate(numbers)
            if (operator.inputs[i], dim) in batches
        }
        splits = [axes if n in read else () for n in range(len(derivation.indices))]
        if graph[tied[operator.name]].is_variable or operator.gradient is not None:
            continue
        planned[operator.name] = fitted(Configuration(tuple(splits)), derivation, mesh)
        batches |= {
            (TensorName(operator.name, o), dim)
            for o, numbers in enumerate(derivation.outputs)
            for dim, n in enumerate(numbers)
            if n in read
        }
    return planned
