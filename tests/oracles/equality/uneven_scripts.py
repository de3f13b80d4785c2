"""Scripts of all families of operators, whose extents few numbers of devices divide."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tests.oracles.equality.engine import Array, Script

__all__ = ["BODIES", "uneven_script"]

v1 = tf.compat.v1
SIDE, CHANNELS, WORDS, CLASSES, WIDTH = 7, 3, 23, 11, 10


def _variable(name: str, *shape: int) -> tf.Tensor:
    normal = v1.random_normal_initializer(stddev=0.4, seed=3)
    found: tf.Tensor = v1.get_variable(name, shape, tf.float64, normal)
    return found


def _images(x: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """Convolutions of every kind, pooling, normalisation by the statistics of the batch."""
    del words
    h = tf.nn.conv2d(x, _variable("first", 3, 3, CHANNELS, 5), 1, "SAME")
    mean, variance = tf.nn.moments(h, [0, 1, 2])
    h = tf.nn.batch_normalization(h, mean, variance, None, _variable("gain", 5), 1e-3)
    h = tf.nn.relu(tf.nn.bias_add(h, _variable("bias", 5)))
    h = tf.nn.depthwise_conv2d(h, _variable("depthwise", 3, 3, 5, 1), [1, 1, 1, 1], "SAME")
    h = tf.nn.max_pool2d(h, 2, 2, "VALID") + tf.nn.avg_pool2d(h, 2, 2, "VALID")
    return tf.reduce_mean(tf.nn.conv2d(h, _variable("second", 1, 1, 5, WIDTH), 1, "SAME"), [1, 2])


def _movement(x: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """Slices, joins, paddings, repetitions, transpositions: shapes in operands."""
    del words
    h = tf.transpose(tf.reshape(x, [-1, SIDE, SIDE * CHANNELS]), [0, 2, 1])
    left, right = tf.split(h, [10, 11], axis=1)
    h = tf.concat([left * 2.0, tf.reverse(right, [1])], axis=1)
    h = tf.pad(h, [[0, 0], [0, 0], [1, 0]])[:, :, 1:]
    h = tf.tile(h[:, tf.newaxis], [1, 3, 1, 1]) + tf.broadcast_to(_variable("shift", SIDE), [SIDE])
    first, second = tf.unstack(tf.stack([h, tf.cumsum(h, axis=3)], axis=1), axis=1)
    h = tf.slice(first * second, [0, 0, 0, 2], [-1, -1, -1, 5])
    h = tf.where(h > 0, h, 0.1 * h) + tf.squeeze(tf.expand_dims(h, 1), 1)
    return tf.einsum("bsyc,cyd->bd", h, _variable("mix", 5, 21, WIDTH))


def _lookups(x: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """Tables with sparse gradients, positions that data decide, greatest values, segments."""
    table = _variable("table", WORDS, 9)
    rows = tf.nn.embedding_lookup(table, words)
    shifted = tf.nn.embedding_lookup(table, WORDS - 1 - words)
    best, _ = tf.math.top_k(tf.transpose(rows, [0, 2, 1]), 2)
    summed = tf.math.unsorted_segment_sum(shifted, tf.zeros_like(words) + tf.range(5), 5)
    state = tf.concat([tf.reduce_max(rows, 1), tf.reduce_min(shifted, 1)], -1)
    state += tf.pad(tf.reduce_mean(best, 2) + tf.gather(summed, [0, 2, 4])[1], [[0, 0], [0, 9]])
    return tf.matmul(state, _variable("states", 18, WIDTH)) + x[:, 0, 0, :1]


def _recurrent(x: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """A cell with gates, unrolled, with dropout."""
    kernel, bias = _variable("kernel", CHANNELS + 5, 20), _variable("gates", 20)
    output = cell = tf.zeros([int(words.shape[0]), 5], tf.float64)
    for step in range(2):
        joined = tf.concat([x[:, step, 0], output], 1)
        gates = tf.split(tf.nn.bias_add(tf.matmul(joined, kernel), bias), 4, 1)
        cell = tf.sigmoid(gates[0]) * cell + tf.sigmoid(gates[1]) * tf.tanh(gates[2])
        output = tf.nn.dropout(tf.sigmoid(gates[3]) * tf.tanh(cell), rate=0.2, seed=step)
    return tf.matmul(output, _variable("states", 5, WIDTH))


def _attention(x: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """Attention with three heads; batch and length are merged and divided again."""
    del x
    batch, length = (int(extent) for extent in words.shape)
    values = tf.gather(_variable("table", WORDS, 9), words)
    flat = tf.reshape(values, [-1, 9])
    parts = [tf.matmul(flat, _variable(name, 9, 9)) for name in ("query", "key", "value")]
    query, key, value = (
        tf.transpose(tf.reshape(part, [batch, length, 3, 3]), [0, 2, 1, 3]) for part in parts
    )
    later = (1.0 - tf.linalg.band_part(tf.ones([length, length], tf.float64), -1, 0)) * -1e9
    scores = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * 0.5 + later)
    mixed = tf.reshape(tf.transpose(tf.matmul(scores, value), [0, 2, 1, 3]), [batch, length, 9])
    values += mixed - tf.reduce_mean(mixed, -1, keepdims=True)
    logits = tf.matmul(tf.reshape(values, [-1, 9]), _variable("table2", WORDS, 9), transpose_b=True)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(words, [-1]), logits=logits
    )
    return tf.einsum("btd,dw->bw", values, _variable("out", 9, WIDTH)) + tf.reduce_mean(losses)


def _joined(x: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """Joins of the batch with one and with two dimensions, directly and in turn, and their
    partings; a recurrent cell between flat layers."""
    batch, length = (int(extent) for extent in words.shape)
    flat = tf.gather(_variable("table", WORDS, 9), tf.reshape(words, [-1]))
    parted = tf.reshape(tf.matmul(flat, _variable("heads", 9, 6)), [batch, length, 2, 3])
    heads = tf.reshape(tf.transpose(parted, [0, 2, 1, 3]), [batch * 2, length, 3])
    scores = tf.nn.softmax(tf.matmul(heads, heads, transpose_b=True))
    nested = tf.reshape(scores, [batch * 2 * length, length]) + 0.1
    mixed = tf.matmul(tf.reshape(nested, [batch * 2, length, length]), heads)
    each = tf.reshape(tf.reduce_sum(tf.reshape(mixed, [batch, 2, length, 3]), 3), [-1])
    inputs = tf.reshape(tf.nn.relu(flat), [batch, length, 9])
    state, states = x[:, 0, 0] * 0.1, []
    for step in range(length):
        gates = tf.concat([inputs[:, step], state], 1)
        state = tf.tanh(tf.matmul(gates, _variable(f"cell{step}", 12, 3)))
        states.append(state)
    logits = tf.matmul(tf.reshape(tf.stack(states, 1), [-1, 3]), _variable("words", 3, WORDS))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(words, [-1]), logits=logits
    )
    summed = tf.reduce_sum(tf.reshape(losses, [batch, length]), 1, keepdims=True)
    summed += tf.reduce_max(tf.reshape(each, [batch, -1]), 1, keepdims=True)
    return tf.matmul(state + summed, _variable("out", 3, WIDTH)) + tf.reduce_mean(losses)


def _experts(x: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """Three experts, weighted by a gate, and three towers in one stacked product."""
    del words
    values = tf.reshape(x[:, 0], [-1, SIDE * CHANNELS])
    gate = tf.nn.softmax(tf.einsum("bd,de->be", values, _variable("gate", SIDE * CHANNELS, 3)))
    inner = tf.einsum("bd,edf->bef", values, _variable("widen", 3, SIDE * CHANNELS, 5))
    outer = tf.einsum("bef,efd->bed", tf.nn.relu(inner), _variable("narrow", 3, 5, WIDTH))
    stacked = tf.transpose(x[:, :3, 0, :], [1, 0, 2])
    towers = tf.matmul(stacked, _variable("towers", 3, CHANNELS, WIDTH))
    mixed = tf.reduce_prod(1.0 + 0.1 * tf.tanh(towers), 0)
    return tf.einsum("bed,be->bd", outer, gate) + mixed


BODIES: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "images": _images,
    "movement": _movement,
    "lookups": _lookups,
    "recurrent": _recurrent,
    "attention": _attention,
    "experts": _experts,
    "joined": _joined,
}
"""Functions from images and words to features [batch, WIDTH], by name."""


def uneven_script(name: str, batch: int) -> Script:
    """A script of one of the `BODIES` in float64, with two steps of a momentum optimizer."""
    random = np.random.default_rng(batch)
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=True):
        x = v1.placeholder(tf.float64, [batch, SIDE, SIDE, CHANNELS], name="x")
        words = v1.placeholder(tf.int32, [batch, 5], name="words")
        logits = tf.matmul(BODIES[name](x, words), _variable("last", WIDTH, CLASSES))
        labels = tf.one_hot(words[:, 0] % CLASSES, CLASSES, dtype=tf.float64)
        losses = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(losses) + tf.reduce_sum(tf.nn.log_softmax(logits)) / 1000
        loss += 0.01 * tf.add_n([tf.nn.l2_loss(v) for v in v1.trainable_variables()])
        train = v1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)

    def fed() -> dict[str, Array]:
        return {
            "x": random.normal(size=(batch, SIDE, SIDE, CHANNELS)),
            "words": random.integers(WORDS, size=(batch, 5)).astype(np.int32),
        }

    return Script(graph, train.name, loss.name, (fed(), fed()))
