"""BERT: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2018).

Section 3.1 with the sizes of BERT-base, and the prediction of masked words (section 3.2, task 1) at
every position from the transposed embeddings. The attention mask is computed once and read by every
layer. For a search by eliminations this is the hardest shape, a node with as many neighbours as
there are layers.
"""

from __future__ import annotations

from functools import partial
from math import sqrt
from typing import Any

import tensoropt as tf
from benchmarks.search.zoo.parts import layer_normalised
from examples.models.parts import Model, variable

__all__ = ["bert"]

EPSILON = 1e-12
BLOCKED = -1e4  # score of a padding position

_normalised = partial(layer_normalised, epsilon=EPSILON)

Tensor = Any


def bert(
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    feed_forward_width: int = 3072,
    length: int = 128,
    vocabulary: int = 30720,
) -> Model:
    """A BERT in training and its cross entropy.

    Args:
        layers: number of encoder layers.
        width: width of embeddings and of every layer's output.
        heads: number of attention heads; divides the width.
        feed_forward_width: hidden width of the feed-forward sublayers.
        length: number of tokens of a sequence.
        vocabulary: number of different tokens; the published BERT has 30,522, padded here to a
            multiple of 1,024 as in implementations.

    Returns:
        Placeholders ``tokens``, ``segments``, ``targets`` (numbers) and ``mask`` (1 for a token, 0
            for padding), each [batch, length], loss, and scores [batch, length, vocabulary].

    Raises:
        ValueError: if the heads do not divide the width.
    """
    if width % heads:
        raise ValueError(f"heads divide the width. Got {heads} and {width}.")
    fed = {name: tf.placeholder(tf.int32, [None, length], name=name)
           for name in ("tokens", "segments", "targets")}  # fmt: skip
    fed["mask"] = tf.placeholder(tf.float32, [None, length], name="mask")
    with tf.variable_scope("bert"):
        table = variable("words", [vocabulary, width], tf.float32)
        values = tf.nn.embedding_lookup(table, fed["tokens"])
        segments = variable("segments", [2, width], tf.float32)
        # As in the published program: a product is faster than lookups in a table of two rows.
        values += tf.einsum("bts,sd->btd", tf.one_hot(fed["segments"], 2), segments)
        positions = variable("positions", [length, width], tf.float32)
        values = _normalised(values + positions, "embedded")
        mask = (1.0 - tf.reshape(fed["mask"], [-1, 1, 1, length])) * BLOCKED
        for number in range(layers):
            with tf.variable_scope(f"layer{number + 1}"):
                values = layer_normalised(
                    values + _attention(values, mask, heads), "attended", EPSILON
                )
                hidden = _gelu(_dense(values, feed_forward_width, "first"))
                values = layer_normalised(
                    values + _dense(hidden, width, "second"), "fed_forward", EPSILON
                )
        scores = tf.einsum("btd,vd->btv", values, table)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=fed["targets"], logits=scores)
    return Model(fed, tf.reduce_mean(losses), scores)


def _attention(values: Tensor, mask: Tensor, heads: int) -> Tensor:
    """Attention of every position to the positions that the mask [batch, 1, 1, length] allows."""
    width, dtype = int(values.shape[-1]), values.dtype
    size = width // heads
    query, key, value = (
        tf.einsum("btd,dhk->bthk", values, variable(part, [width, heads, size], dtype))
        for part in ("query", "key", "value")
    )
    scores = tf.einsum("bthk,bshk->bhts", query, key) * size**-0.5 + mask
    mixed = tf.einsum("bhts,bshk->bthk", tf.nn.softmax(scores), value)
    return tf.einsum("bthk,hkd->btd", mixed, variable("output", [heads, size, width], dtype))


def _dense(values: Tensor, outputs: int, name: str) -> Tensor:
    inputs, dtype = int(values.shape[-1]), values.dtype
    with tf.variable_scope(name):
        bias = tf.get_variable("bias", [outputs], dtype, tf.zeros_initializer())
        return (
            tf.einsum("bti,io->bto", values, variable("weights", [inputs, outputs], dtype)) + bias
        )


def _gelu(values: Tensor) -> Tensor:
    """The activation of Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016)."""
    return values * 0.5 * (1.0 + tf.math.erf(values / sqrt(2.0)))
