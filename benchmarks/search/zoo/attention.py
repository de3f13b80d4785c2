"""Transformers: a decoder alone, an encoder alone, and a small pair for translation."""

from __future__ import annotations

import tensoropt as tf
from benchmarks.search.zoo.parts import (
    attention,
    cross_entropy,
    layer_normalised,
    linear,
    tokens,
)
from examples.models.parts import Tensor, variable

__all__ = ["decoder", "encoder", "small_translation"]

BLOCKED = -1e9


def decoder(layers: int, width: int = 1024, vocabulary: int = 50257) -> None:
    """Radford et al., "Language Models are Unsupervised Multitask Learners" (2019)."""
    length, heads = 256, width // 64
    read, targets = tokens("tokens", length), tokens("targets", length)
    table = variable("words", [vocabulary, width], tf.float32)
    values = tf.gather(table, read) + variable("positions", [length, width], tf.float32)
    for number in range(layers):
        with tf.variable_scope(f"layer{number + 1}"):
            normalised = layer_normalised(values, "first")
            values += attention(normalised, normalised, _later(length), heads, "attention")
            values += _feed_forward(layer_normalised(values, "second"), 4 * width)
    values = layer_normalised(values, "last")
    scores = tf.matmul(tf.reshape(values, [-1, width]), table, transpose_b=True)
    tf.train.AdamOptimizer(1e-4).minimize(cross_entropy(scores, targets))


def encoder(layers: int) -> None:
    """Devlin et al., "BERT" (2018): words are masked at some positions of each text; every layer
    reads a padding mask."""
    length, width, heads, vocabulary, places = 128, 768, 12, 30522, 20
    read, segments = tokens("tokens", length), tokens("segments", length)
    padding = tokens("padding", length)
    targets = tokens("targets", places)
    asked = tf.placeholder(tf.float32, [None, places, length], name="asked")
    table = variable("words", [vocabulary, width], tf.float32)
    values = tf.gather(table, read) + variable("positions", [length, width], tf.float32)
    values += tf.gather(variable("segments", [2, width], tf.float32), segments)
    values = layer_normalised(values, "embedded")
    blocked = tf.cast(tf.reshape(padding, [-1, 1, 1, length]), tf.float32) * BLOCKED
    for number in range(layers):
        with tf.variable_scope(f"layer{number + 1}"):
            mixed = attention(values, values, blocked, heads, "attention")
            values = layer_normalised(values + mixed, "first")
            values = layer_normalised(values + _feed_forward(values, 4 * width), "second")
    found = tf.reshape(tf.matmul(asked, values), [-1, width])
    found = layer_normalised(tf.tanh(linear(found, width, "transform")), "transformed")
    bias = tf.get_variable("bias", [vocabulary], tf.float32, tf.zeros_initializer())
    scores = tf.nn.bias_add(tf.matmul(found, table, transpose_b=True), bias)
    tf.train.AdamOptimizer(1e-4).minimize(cross_entropy(scores, targets))


def small_translation(layers: int) -> None:
    """A small Transformer of Vaswani et al., "Attention Is All You Need" (2017), with smoothed
    labels."""
    length, width, heads, vocabulary = 64, 256, 4, 8192
    source, target = tokens("source", length), tokens("target", length)
    shifted = tokens("shifted", length)
    table = variable("words", [vocabulary, width], tf.float32)
    positions = variable("positions", [length, width], tf.float32)
    padded = tf.cast(tf.equal(source, 0), tf.float32) * BLOCKED
    blocked = tf.expand_dims(tf.expand_dims(padded, 1), 1)
    memory = tf.gather(table, source) * width**0.5 + positions
    for number in range(layers):
        with tf.variable_scope(f"encoder{number + 1}"):
            mixed = attention(memory, memory, blocked, heads, "attention")
            memory = layer_normalised(memory + mixed, "first")
            memory = layer_normalised(memory + _feed_forward(memory, 4 * width), "second")
    values = tf.gather(table, shifted) * width**0.5 + positions
    for number in range(layers):
        with tf.variable_scope(f"decoder{number + 1}"):
            mixed = attention(values, values, _later(length), heads, "own")
            values = layer_normalised(values + mixed, "first")
            mixed = attention(values, memory, blocked, heads, "attention")
            values = layer_normalised(values + mixed, "second")
            values = layer_normalised(values + _feed_forward(values, 4 * width), "third")
    scores = tf.matmul(tf.reshape(values, [-1, width]), table, transpose_b=True)
    wanted = tf.one_hot(tf.reshape(target, [-1]), vocabulary, 0.9, 0.1 / vocabulary)
    losses = tf.nn.softmax_cross_entropy_with_logits(labels=wanted, logits=scores)
    weights = tf.cast(tf.not_equal(tf.reshape(target, [-1]), 0), tf.float32)
    loss = tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)
    tf.train.AdamOptimizer(1e-3).minimize(loss)


def _feed_forward(values: Tensor, hidden: int) -> Tensor:
    width = int(values.shape[-1])
    return linear(tf.nn.relu(linear(values, hidden, "widen")), width, "narrow")


def _later(length: int) -> Tensor:
    """The term that blocks the scores of later positions, [length, length]."""
    return (1.0 - tf.linalg.band_part(tf.ones([length, length]), -1, 0)) * BLOCKED
