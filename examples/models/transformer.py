"""The encoder-decoder of Vaswani et al., "Attention Is All You Need" (2017): section 3 throughout,
with one table for both embeddings and the scores (section 3.4), and label smoothing (section 5.4).
Heads are a dimension of their own in the weights and activations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tensoropt as tf

from .parts import Model, Tensor, variable

__all__ = ["transformer", "transformer_parameters"]

EPSILON = 1e-6
BLOCKED = -1e9  # score of a position that attention must not see


def transformer(
    layers: int = 6,
    model_width: int = 512,
    heads: int = 8,
    feed_forward_width: int = 2048,
    source_length: int = 64,
    target_length: int = 64,
    vocabulary: int = 32000,
    *,
    dropout: float = 0.0,
    label_smoothing: float = 0.0,
    dtype: Any = tf.float32,
) -> Model:
    """An encoder-decoder and its cross entropy.

    Args:
        layers: of the encoder, and as many of the decoder.
        model_width: width of embeddings and of every sublayer's output.
        heads: attention heads; divides model_width.
        feed_forward_width: hidden width of the feed-forward sublayers.
        source_length: tokens of a source sequence.
        target_length: tokens of a target sequence.
        vocabulary: number of different tokens, source and target together.
        dropout: rate after embeddings and every sublayer; the paper's is 0.1.
        label_smoothing: share of each target's weight spread over the vocabulary; the paper's
            is 0.1.
        dtype: floating-point type.

    Returns:
        Placeholders ``source`` [batch, source_length], ``decoder_input`` and ``targets``
        [batch, target_length], loss, and scores [batch, target_length, vocabulary].

    Raises:
        ValueError: if the heads do not divide the model's width.
    """
    if model_width % heads:
        raise ValueError(f"heads divide the model's width. Got {heads} and {model_width}.")
    source = tf.placeholder(tf.int32, [None, source_length], name="source")
    decoder_input = tf.placeholder(tf.int32, [None, target_length], name="decoder_input")
    targets = tf.placeholder(tf.int32, [None, target_length], name="targets")
    layer = _Sublayers(heads, feed_forward_width, dropout)
    with tf.variable_scope("transformer"):
        spread = model_width**-0.5
        table = variable(
            "embedding", [vocabulary, model_width], dtype, tf.random_normal_initializer,
            stddev=spread,
        )  # fmt: skip
        with tf.variable_scope("encoder"):
            memory = layer.dropped(_embedded(table, source))
            for number in range(layers):
                with tf.variable_scope(f"layer{number + 1}"):
                    memory = layer.attention(memory, memory, "self_attention")
                    memory = layer.feed_forward(memory)
        with tf.variable_scope("decoder"):
            values = layer.dropped(_embedded(table, decoder_input))
            future = np.triu(np.full([target_length, target_length], BLOCKED), 1)
            for number in range(layers):
                with tf.variable_scope(f"layer{number + 1}"):
                    values = layer.attention(values, values, "self_attention", future)
                    values = layer.attention(values, memory, "cross_attention")
                    values = layer.feed_forward(values)
        scores = tf.einsum("btd,vd->btv", values, table)
    loss = tf.reduce_mean(_cross_entropy(targets, scores, vocabulary, label_smoothing))
    fed = {"source": source, "decoder_input": decoder_input, "targets": targets}
    return Model(fed, loss, scores)


def transformer_parameters(
    layers: int, model_width: int, feed_forward_width: int, vocabulary: int
) -> int:
    """Number of parameters: attention without biases, feed-forward with, a table for all."""
    attention = 4 * model_width**2
    feed_forward = 2 * model_width * feed_forward_width + feed_forward_width + model_width
    norm = 2 * model_width
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return layers * (encoder + decoder) + vocabulary * model_width


class _Sublayers:
    """Sublayers, each with its residual connection: LayerNorm(x + Sublayer(x))."""

    def __init__(self, heads: int, feed_forward_width: int, dropout: float) -> None:
        self._heads = heads
        self._feed_forward_width = feed_forward_width
        self._dropout = dropout
        self._dropouts = 0

    def dropped(self, values: Tensor) -> Tensor:
        """Dropout, each with a seed of its own."""
        if not self._dropout:
            return values
        self._dropouts += 1
        return tf.nn.dropout(values, rate=self._dropout, seed=self._dropouts)

    def attention(
        self,
        values: Tensor,
        memory: Tensor,
        name: str,
        mask: npt.NDArray[np.float64] | None = None,
    ) -> Tensor:
        """Multi-head attention of values [b, t, d] to memory [b, s, d] (section 3.2)."""
        width, dtype = int(values.shape[-1]), values.dtype
        size = width // self._heads
        with tf.variable_scope(name):
            projections = [
                tf.einsum("btd,dhk->bthk", read, self._projection(part, width, size, dtype))
                for part, read in (("query", values), ("key", memory), ("value", memory))
            ]
            query, key, value = projections
            scores = tf.einsum("bthk,bshk->bhts", query, key) * size**-0.5
            if mask is not None:
                scores += tf.constant(mask, dtype)
            mixed = tf.einsum("bhts,bshk->bthk", tf.nn.softmax(scores), value)
            weights = variable("output", [self._heads, size, width], dtype, _glorot_of(width))
            mixed = tf.einsum("bthk,hkd->btd", mixed, weights)
            return _layer_norm(values + self.dropped(mixed))

    def feed_forward(self, values: Tensor) -> Tensor:
        """Two dense layers at every position (section 3.3)."""
        width, dtype = int(values.shape[-1]), values.dtype
        hidden = self._feed_forward_width
        with tf.variable_scope("feed_forward"):
            first = variable("first", [width, hidden], dtype)
            first_bias = tf.get_variable("first_bias", [hidden], dtype, tf.zeros_initializer())
            second = variable("second", [hidden, width], dtype)
            second_bias = tf.get_variable("second_bias", [width], dtype, tf.zeros_initializer())
            inner = tf.nn.relu(tf.einsum("btd,df->btf", values, first) + first_bias)
            outer = tf.einsum("btf,fd->btd", inner, second) + second_bias
            return _layer_norm(values + self.dropped(outer))

    def _projection(self, part: str, width: int, size: int, dtype: Any) -> Tensor:
        return variable(part, [width, self._heads, size], dtype, _glorot_of(width))


def _glorot_of(width: int) -> Any:
    """Glorot's uniform initializer of a [width, width] matrix, whatever a weight's shape."""

    def make(seed: int) -> Any:
        bound = (3.0 / width) ** 0.5
        return tf.random_uniform_initializer(-bound, bound, seed=seed)

    return make


def _embedded(table: Tensor, tokens: Tensor) -> Tensor:
    """Embeddings times the square root of their width, plus positions (sections 3.4 and 3.5)."""
    length, width = int(tokens.shape[1]), int(table.shape[1])
    scaled = tf.nn.embedding_lookup(table, tokens) * width**0.5
    return scaled + tf.constant(_positions(length, width), table.dtype.base_dtype)


def _positions(length: int, width: int) -> npt.NDArray[np.float64]:
    """Sines at even and cosines at odd places (section 3.5): [length, width]."""
    place = np.arange(length)[:, None] / 10000 ** (2 * (np.arange(width)[None, :] // 2) / width)
    return np.where(np.arange(width) % 2, np.cos(place), np.sin(place))


def _layer_norm(values: Tensor) -> Tensor:
    """Normalise the last dimension (Ba et al., "Layer Normalization", 2016)."""
    width, dtype = int(values.shape[-1]), values.dtype
    with tf.variable_scope("norm"):
        scale = tf.get_variable("scale", [width], dtype, tf.ones_initializer())
        offset = tf.get_variable("offset", [width], dtype, tf.zeros_initializer())
        mean, variance = tf.nn.moments(values, [-1], keepdims=True)
        return (values - mean) * tf.rsqrt(variance + EPSILON) * scale + offset


def _cross_entropy(targets: Tensor, scores: Tensor, vocabulary: int, smoothing: float) -> Tensor:
    if not smoothing:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=scores)
    sure, even = 1.0 - smoothing, smoothing / vocabulary
    labels = tf.one_hot(targets, vocabulary, sure + even, even, dtype=scores.dtype)
    return tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=scores)
