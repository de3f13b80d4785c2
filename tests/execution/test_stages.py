"""Random pipelines of two to four stages are the step of the whole batch on one device."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from benchmarks.equality import Script, Trained, mlp, train_plain, worst_error
from benchmarks.equality.stages import draw_pipeline, train_pipeline

tensoropt.enable_graph_mode()

v1 = tf.compat.v1
BATCH, WIDTH, WORDS = 16, 8, 12


def tied() -> Script:
    """Words that the first and the last layer share, and what joins all gradients in a step.

    Other words, looked up; weights of examples that are summed first; weight decay; a rate that
    falls; clipping by the global norm; Adam, of whose variables no stage reads some.
    """
    graph = tf.Graph()
    with graph.as_default():
        tokens = v1.placeholder(tf.int32, [None, 2], name="tokens")
        make = functools.partial(v1.get_variable, dtype=tf.float64, use_resource=True)
        normal = v1.random_normal_initializer
        words = make("words", [WORDS, WIDTH], initializer=normal(seed=1))
        table = make("table", [WORDS, WIDTH], initializer=normal(seed=2))
        values = tf.matmul(tf.one_hot(tokens[:, 0], WORDS, dtype=tf.float64), words)
        values += tf.gather(table, tokens[:, 1])
        decayed = []
        for layer in range(3):
            weights = make(f"weights{layer}", [WIDTH, WIDTH], initializer=normal(seed=3 + layer))
            values = tf.nn.dropout(tf.tanh(tf.matmul(values, weights)), rate=0.2, seed=layer)
            decayed.append(tf.nn.l2_loss(weights))
        scores = tf.matmul(values, words, transpose_b=True, name="scores")
        labels = tokens[:, 0]
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        counted = tf.cast(tf.not_equal(labels, 0), tf.float64)
        loss = tf.reduce_sum(each * counted) / tf.reduce_sum(counted) + 0.01 * tf.add_n(decayed)
        step = v1.train.create_global_step()
        rate = v1.train.exponential_decay(tf.constant(0.05, tf.float64), step, 1, 0.7)
        optimizer = v1.train.AdamOptimizer(rate)
        pairs = optimizer.compute_gradients(loss)
        clipped, _ = v1.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
        pairs = [(gradient, pair[1]) for gradient, pair in zip(clipped, pairs, strict=True)]
        train = optimizer.apply_gradients(pairs, step)
    random = np.random.default_rng(0)
    feeds = tuple(
        {"tokens": random.integers(WORDS, size=(BATCH, 2)).astype(np.int32)} for _ in range(2)
    )
    return Script(graph, train.name, loss.name, feeds)


@functools.cache
def built(name: str) -> tuple[Script, Trained]:
    script = tied() if name == "tied" else mlp(tf.float64, 2, dropout=0.25)
    return script, train_plain(script)


@pytest.mark.parametrize("name", ["mlp", "tied"])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_pipelines(name: str, seed: int) -> None:
    script, truth = built(name)
    drawn = draw_pipeline(script, np.random.default_rng(seed))
    assert worst_error(train_pipeline(script, drawn), truth) <= 1e-10
