"""Networks that mix tokens by plain products: a token mixer and a dense mixture of experts."""

from __future__ import annotations

import tensoropt as tf
from benchmarks.search.zoo.parts import cross_entropy, layer_normalised, linear, tokens
from examples.models.parts import Tensor, variable

__all__ = ["experts", "mixer", "mixture"]


def mixer(layers: int) -> None:
    """Tolstikhin et al., "MLP-Mixer" (2021), size B, with patches of 16 by 16 pixels."""
    size, patch, width = 224, 16, 768
    images = tf.placeholder(tf.float32, [None, size, size, 3], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    weights = variable("patches", [patch, patch, 3, width], tf.float32)
    values = tf.nn.conv2d(images, weights, strides=patch, padding="VALID")
    values = tf.reshape(values, [-1, (size // patch) ** 2, width])
    for number in range(layers):
        with tf.variable_scope(f"layer{number + 1}"):
            turned = tf.transpose(layer_normalised(values, "first"), [0, 2, 1])
            values += tf.transpose(_perceptron(turned, width // 2, "over_tokens"), [0, 2, 1])
            normalised = layer_normalised(values, "second")
            values += _perceptron(normalised, 4 * width, "over_channels")
    pooled = tf.reduce_mean(layer_normalised(values, "last"), axis=1)
    loss = cross_entropy(linear(pooled, 1000, "scores"), labels)
    tf.train.AdamOptimizer(1e-3).minimize(loss)


def experts(layers: int) -> None:
    """A mixture in which all experts compute all tokens, weighted by a gate, after
    self-attention."""
    length, width, hidden, count, heads, vocabulary = 128, 512, 2048, 8, 8, 32000
    read, targets = tokens("tokens", length), tokens("targets", length)
    values = tf.gather(variable("words", [vocabulary, width], tf.float32), read)
    values += variable("positions", [length, width], tf.float32)
    for number in range(layers):
        with tf.variable_scope(f"layer{number + 1}"):
            values += _self_attention(layer_normalised(values, "first"), heads)
            values += mixture(layer_normalised(values, "second"), count, hidden)
    values = layer_normalised(values, "last")
    scores = tf.einsum("btd,dv->btv", values, variable("scores", [width, vocabulary], tf.float32))
    tf.train.AdamOptimizer(1e-3).minimize(cross_entropy(scores, targets))


def _perceptron(values: Tensor, hidden: int, name: str) -> Tensor:
    width = int(values.shape[-1])
    with tf.variable_scope(name):
        values = linear(values, hidden, "widen")
        return linear(values * tf.sigmoid(1.702 * values), width, "narrow")


def _self_attention(values: Tensor, heads: int) -> Tensor:
    width = int(values.shape[-1])
    size = width // heads
    query, key, value = (
        tf.einsum("btd,dhk->bthk", values, variable(part, [width, heads, size], values.dtype))
        for part in ("query", "key", "value")
    )
    weights = tf.nn.softmax(tf.einsum("bthk,bshk->bhts", query, key) * size**-0.5)
    mixed = tf.einsum("bhts,bshk->bthk", weights, value)
    return tf.einsum("bthk,hkd->btd", mixed, variable("output", [heads, size, width], values.dtype))


def mixture(values: Tensor, count: int, hidden: int) -> Tensor:
    width, dtype = int(values.shape[-1]), values.dtype
    gate = tf.einsum("btd,de->bte", values, variable("gate", [width, count], dtype))
    inner = tf.einsum("btd,edf->btef", values, variable("widen", [count, width, hidden], dtype))
    narrow = variable("narrow", [count, hidden, width], dtype)
    outer = tf.einsum("btef,efd->bted", tf.nn.relu(inner), narrow)
    return tf.einsum("bted,bte->btd", outer, tf.nn.softmax(gate))
