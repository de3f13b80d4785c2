"""Graphs of dense layers: a long chain, and embedding tables whose rows meet in products."""

from __future__ import annotations

import numpy as np

import tensoropt as tf
from benchmarks.search.zoo.parts import linear, tokens
from examples.models.parts import Tensor, dense, variable

__all__ = ["chain", "tables"]

# Numbers of different values of the categorical columns in Criteo's display advertising data.
ROWS = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip


def chain(layers: int) -> None:
    """Dense layers one after another."""
    width = 2048
    values = tf.placeholder(tf.float32, [None, width], name="values")
    wanted = tf.placeholder(tf.float32, [None, width], name="wanted")
    for number in range(layers):
        values = tf.nn.relu(dense(values, width, f"layer{number + 1}"))
    loss = tf.reduce_mean(tf.square(values - wanted))
    tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)


def tables(count: int) -> None:
    """Naumov et al., "Deep Learning Recommendation Model" (2019), with 26 tables."""
    width = 64
    numbers = tf.placeholder(tf.float32, [None, 13], name="numbers")
    categories = tokens("categories", count)
    clicked = tf.placeholder(tf.float32, [None, 1], name="clicked")
    features = [_perceptron(numbers, (512, 256, width), "bottom")]
    for number in range(count):
        table = variable(f"table{number + 1}", [ROWS[number], width], tf.float32)
        features.append(tf.nn.embedding_lookup(table, categories[:, number]))
    rows = tf.stack(features, axis=1)
    products = tf.reshape(tf.matmul(rows, rows, transpose_b=True), [-1, (count + 1) ** 2])
    pairs = np.ravel_multi_index(np.tril_indices(count + 1, -1), (count + 1, count + 1))
    joined = tf.concat([features[0], tf.gather(products, pairs, axis=1)], axis=1)
    scores = linear(_perceptron(joined, (1024, 1024, 512, 256), "top"), 1, "score")
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=clicked, logits=scores)
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(losses))


def _perceptron(values: Tensor, widths: tuple[int, ...], name: str) -> Tensor:
    for number, width in enumerate(widths):
        values = tf.nn.relu(dense(values, width, f"{name}{number + 1}"))
    return values
