"""Layers that several graphs of the zoo share."""

from __future__ import annotations

from math import prod

import tensoropt as tf
from examples.models.parts import Tensor, variable

__all__ = [
    "attention",
    "batch_normalised",
    "biased",
    "convolution",
    "cross_entropy",
    "flattened",
    "layer_normalised",
    "linear",
    "lstm_step",
    "plain_convolution",
    "tokens",
    "transposed",
]


def tokens(name: str, length: int) -> Tensor:
    """A placeholder of integers, [batch, length]."""
    return tf.placeholder(tf.int32, [None, length], name=name)


def flattened(values: Tensor) -> Tensor:
    """Reshape [batch, ...] to [batch, n]."""
    return tf.reshape(values, [-1, prod(values.shape.as_list()[1:])])


def linear(values: Tensor, outputs: int, name: str) -> Tensor:
    """A dense layer of the last dimension: [batch, ..., n] to [batch, ..., outputs]."""
    with tf.variable_scope(name):
        weights = variable("weights", [int(values.shape[-1]), outputs], values.dtype)
        bias = tf.get_variable("bias", [outputs], values.dtype, tf.zeros_initializer())
        return tf.nn.bias_add(tf.tensordot(values, weights, axes=1), bias)


def layer_normalised(values: Tensor, name: str, epsilon: float = 1e-5) -> Tensor:
    """Normalise the last dimension (Ba et al., "Layer Normalization", 2016)."""
    width = int(values.shape[-1])
    with tf.variable_scope(name):
        scale = tf.get_variable("scale", [width], values.dtype, tf.ones_initializer())
        offset = tf.get_variable("offset", [width], values.dtype, tf.zeros_initializer())
        mean, variance = tf.nn.moments(values, [-1], keepdims=True)
        return (values - mean) * tf.rsqrt(variance + epsilon) * scale + offset


def attention(queries: Tensor, memory: Tensor, blocked: Tensor, heads: int, name: str) -> Tensor:
    """Attention of queries [batch, t, n] to a memory [batch, s, n]; ``blocked`` is added to the
    scores."""
    width = int(queries.shape[-1])
    size = width // heads

    def split(values: Tensor, part: str) -> Tensor:
        values = linear(values, width, part)
        values = tf.reshape(values, [-1, int(values.shape[1]), heads, size])
        return tf.transpose(values, [0, 2, 1, 3])

    with tf.variable_scope(name):
        query = split(queries, "query")
        key, value = split(memory, "key"), split(memory, "value")
        scores = tf.matmul(query, key, transpose_b=True) * size**-0.5 + blocked
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
        return linear(tf.reshape(mixed, [-1, int(queries.shape[1]), width]), width, "output")


def plain_convolution(values: Tensor, channels: int, window: int, stride: int, name: str) -> Tensor:
    """A convolution with padding "SAME" and without a bias, as before batch normalisation."""
    with tf.variable_scope(name):
        shape = [window, window, int(values.shape[-1]), channels]
        weights = variable("weights", shape, values.dtype, tf.initializers.he_normal)
        return tf.nn.conv2d(values, weights, strides=stride, padding="SAME")


def convolution(values: Tensor, channels: int, window: int, stride: int, name: str) -> Tensor:
    """A convolution with padding "SAME" and a bias, without activation."""
    return biased(plain_convolution(values, channels, window, stride, name), name)


def biased(values: Tensor, name: str) -> Tensor:
    """Add a bias for every channel."""
    with tf.variable_scope(name):
        channels = int(values.shape[-1])
        bias = tf.get_variable("bias", [channels], values.dtype, tf.zeros_initializer())
        return tf.nn.bias_add(values, bias)


def transposed(values: Tensor, channels: int, window: int, name: str) -> Tensor:
    """A transposed convolution that doubles the resolution, without a bias."""
    size, inputs = int(values.shape[1]), int(values.shape[-1])
    with tf.variable_scope(name):
        weights = variable("weights", [window, window, channels, inputs], values.dtype)
        shape = tf.stack([tf.shape(values)[0], 2 * size, 2 * size, channels])
        values = tf.nn.conv2d_transpose(values, weights, shape, strides=2, padding="SAME")
        return tf.reshape(values, [-1, 2 * size, 2 * size, channels])


def batch_normalised(values: Tensor, name: str, *, moving: bool = False) -> Tensor:
    """Normalise by the batch's statistics; with ``moving``, keep moving averages of them as
    scripts do."""
    channels = int(values.shape[-1])
    with tf.variable_scope(name):
        scale = tf.get_variable("scale", [channels], values.dtype, tf.ones_initializer())
        offset = tf.get_variable("offset", [channels], values.dtype, tf.zeros_initializer())
        values, *statistics = tf.nn.fused_batch_norm(values, scale, offset, epsilon=1e-3)
        if moving:
            for part, now in zip(("mean", "variance"), statistics, strict=True):
                start = tf.zeros_initializer() if part == "mean" else tf.ones_initializer()
                average = tf.get_variable(part, [channels], now.dtype, start, trainable=False)
                update = tf.assign_sub(average, 0.01 * (average - now))
                tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update)
        return values


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean cross entropy of scores [..., classes] and labels [...]."""
    flat = tf.reshape(scores, [-1, int(scores.shape[-1])])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(labels, [-1]), logits=flat
    )
    return tf.reduce_mean(losses)


def lstm_step(
    values: Tensor, state: tuple[Tensor, Tensor], kernel: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM; returns the new cell and output, both [batch, hidden]."""
    cell, output = state
    gates = tf.nn.bias_add(tf.matmul(tf.concat([values, output], axis=1), kernel), bias)
    write, candidate, forget, read = tf.split(gates, 4, axis=1)
    cell = tf.sigmoid(forget + 1.0) * cell + tf.sigmoid(write) * tf.tanh(candidate)
    return cell, tf.sigmoid(read) * tf.tanh(cell)
