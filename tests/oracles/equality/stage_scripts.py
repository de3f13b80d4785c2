"""Scripts with structures that matter to pipelines, beside layers.

They have weights that stages share, tensors that skip stages, independent branches, operators that
join the gradients of all stages, and checks.
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from tests.oracles.equality.engine import Script

__all__ = ["skips", "tied", "towers"]

v1 = tf.compat.v1
BATCH, WIDTH, WORDS = 16, 8, 12


def tied(dtype: tf.DType = tf.float64, steps: int = 2, layers: int = 3) -> Script:
    """A model whose first and last layer share a table of words, with operators that join all
    gradients.

    It has a second table with lookups, weighted examples, weight decay, a falling learning rate,
    clipping by the global norm, and Adam with a variable that no stage reads.
    """
    graph = tf.Graph()
    with graph.as_default():
        tokens = v1.placeholder(tf.int32, [None, 2], name="tokens")
        make = functools.partial(v1.get_variable, dtype=dtype, use_resource=True)
        normal = v1.random_normal_initializer
        words = make("words", [WORDS, WIDTH], initializer=normal(seed=1))
        table = make("table", [WORDS, WIDTH], initializer=normal(seed=2))
        values = tf.matmul(tf.one_hot(tokens[:, 0], WORDS, dtype=dtype), words)
        values += tf.gather(table, tokens[:, 1])
        decayed = []
        for layer in range(layers):
            weights = make(f"weights{layer}", [WIDTH, WIDTH], initializer=normal(seed=3 + layer))
            values = tf.nn.dropout(tf.tanh(tf.matmul(values, weights)), rate=0.2, seed=layer)
            decayed.append(tf.nn.l2_loss(weights))
        scores = tf.matmul(values, words, transpose_b=True, name="scores")
        labels = tokens[:, 0]
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        counted = tf.cast(tf.not_equal(labels, 0), dtype)
        loss = tf.reduce_sum(each * counted) / tf.reduce_sum(counted) + 0.01 * tf.add_n(decayed)
        step = v1.train.create_global_step()
        rate = v1.train.exponential_decay(tf.constant(0.05, dtype), step, 1, 0.7)
        optimizer = v1.train.AdamOptimizer(rate)
        if dtype != tf.float64:  # Adam divides by small gradients, which magnifies rounding
            optimizer = v1.train.MomentumOptimizer(rate, 0.9)
        pairs = optimizer.compute_gradients(loss)
        clipped, _ = v1.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
        pairs = [(gradient, pair[1]) for gradient, pair in zip(clipped, pairs, strict=True)]
        train = optimizer.apply_gradients(pairs, step)
        tf.constant(3.0, name="fixed")
        optimizer.minimize(tf.add_n(decayed), name="decay")
    random = np.random.default_rng(0)
    feeds = tuple(
        {"tokens": random.integers(WORDS, size=(BATCH, 2)).astype(np.int32)} for _ in range(steps)
    )
    return Script(graph, train.name, loss.name, feeds)


def skips(dtype: tf.DType = tf.float64, steps: int = 2, layers: int = 5) -> Script:
    """Layers that read the layers two and three before them; the last layer also reads the first.

    Two losses are minimised by one momentum optimizer; the second loss is of an inner layer.
    """
    graph = tf.Graph()
    with graph.as_default():
        images = v1.placeholder(dtype, [None, WIDTH], name="images")
        labels = v1.placeholder(tf.int32, [None], name="labels")
        make = functools.partial(v1.get_variable, dtype=dtype, use_resource=True)
        glorot = v1.glorot_uniform_initializer
        made = [images]
        for number in range(layers):
            read = tf.concat([made[-1], made[max(0, number - 2)]], 1)
            kernel = make(f"kernel{number}", [2 * WIDTH, WIDTH], initializer=glorot(seed=number))
            bias = make(f"bias{number}", [WIDTH], initializer=v1.zeros_initializer())
            values = tf.tanh(tf.matmul(read, kernel) + bias)
            made.append(values + made[max(0, number - 1)])
        scores = make("scores", [WIDTH, WORDS], initializer=glorot(seed=9))
        logits = tf.matmul(made[-1] + made[1], scores)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(each) + 0.1 * tf.reduce_mean(tf.square(made[2]))
        train = v1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    random = np.random.default_rng(0)
    feeds = tuple(
        {
            "images": random.normal(size=(BATCH, WIDTH)).astype(dtype.as_numpy_dtype),
            "labels": random.integers(WORDS, size=BATCH).astype(np.int32),
        }
        for _ in range(steps)
    )
    return Script(graph, train.name, loss.name, feeds)


def towers(dtype: tf.DType = tf.float64, steps: int = 2, layers: int = 2) -> Script:
    """Two towers with a common layer; each has a table with a sparse gradient. The second tower's
    output is read twice where the towers join, and has a loss of its own."""
    graph = tf.Graph()
    with graph.as_default():
        tokens = v1.placeholder(tf.int32, [None, 2], name="tokens")
        labels = v1.placeholder(dtype, [None, 1], name="labels")
        make = functools.partial(v1.get_variable, dtype=dtype, use_resource=True)
        glorot = v1.glorot_uniform_initializer
        shared = make("shared", [WIDTH, WIDTH], initializer=glorot(seed=1))
        ends = []
        for tower in range(2):
            table = make(f"table{tower}", [WORDS, WIDTH], initializer=glorot(seed=2 + tower))
            values = tf.tanh(tf.matmul(tf.gather(table, tokens[:, tower]), shared))
            for layer in range(layers):
                name = f"tower{tower}_layer{layer}"
                weights = make(name, [WIDTH, WIDTH], initializer=glorot(seed=4 + layer))
                values = tf.nn.dropout(tf.tanh(tf.matmul(values, weights)), rate=0.1, seed=tower)
            ends.append(values)
        first, second = ends
        met = tf.concat([first * second, first, second], 1)
        joined = make("joined", [3 * WIDTH, WIDTH], initializer=glorot(seed=8))
        scores = make("scores", [WIDTH, 1], initializer=glorot(seed=9))
        made = tf.matmul(tf.tanh(tf.matmul(tf.matmul(met, joined), shared)), scores)
        loss = tf.reduce_mean(tf.square(made - labels)) + 0.1 * tf.reduce_mean(tf.square(second))
        train = v1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    random = np.random.default_rng(0)
    feeds = tuple(
        {
            "tokens": random.integers(WORDS, size=(BATCH, 2)).astype(np.int32),
            "labels": random.normal(size=(BATCH, 1)).astype(dtype.as_numpy_dtype),
        }
        for _ in range(steps)
    )
    return Script(graph, train.name, loss.name, feeds)
