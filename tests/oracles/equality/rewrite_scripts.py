"""Training scripts in which many substitutions match, beside those of `scripts`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.oracles.equality.engine import Array, Script
from tests.oracles.equality.scripts import SCRIPTS, mlp, model_script

__all__ = [
    "REWRITE_SCRIPTS",
    "adapters",
    "branches",
    "encoder",
    "experts",
    "mobile",
    "recommender",
    "script_of",
    "weights",
]

v1 = tf.compat.v1
_BATCH, _WIDTH, _STEPS = 16, 16, 5


def adapters(
    dtype: tf.DType = tf.float32, batch: int = _BATCH, width: int = _WIDTH, rank: int = 4
) -> Script:
    """Layers whose frozen weights have a trained difference of low rank (Hu et al., "LoRA: low-rank
    adaptation of large language models", 2022, equation 3), written as a sum of weights."""

    def build(values: Any) -> Any:
        for layer in range(2):
            frozen = weights(f"frozen{layer}", [width, width], dtype, trainable=False)
            down = weights(f"down{layer}", [width, rank], dtype)
            up = weights(f"up{layer}", [rank, width], dtype)
            values = tf.tanh(tf.matmul(values, frozen + tf.matmul(down, up)))
        return values

    return script_of(build, dtype, [batch, width])


def experts(dtype: tf.DType = tf.float32) -> Script:
    """Attention over queries, keys and values of one input; gated sums; products of sums."""

    def build(values: Any) -> Any:
        query, key, value = (
            tf.matmul(values, weights(name, [_WIDTH, _WIDTH], dtype))
            for name in ("query", "key", "value")
        )
        mixed = tf.matmul(tf.nn.softmax(tf.matmul(query, key, transpose_b=True)), value)
        gate, other = (
            tf.matmul(values, weights(name, [_WIDTH, 2 * _WIDTH], dtype))
            for name in ("gate", "other")
        )
        gated = tf.matmul(tf.sigmoid(gate) * other, weights("down", [2 * _WIDTH, _WIDTH], dtype))
        one, both = weights("one", [_WIDTH, _WIDTH], dtype), tf.concat([mixed, gated], 1)
        first, second = tf.split(tf.tanh(both), 2, 1)
        values = tf.matmul(first, one) + tf.matmul(second, one)
        return tf.matmul(values + first, weights("last", [_WIDTH, _WIDTH], dtype))

    return script_of(build, dtype, [_BATCH, _WIDTH])


def branches(dtype: tf.DType = tf.float32) -> Script:
    """Convolutions of one input side by side, as in Szegedy et al., "Going deeper with
    convolutions" (2015)."""

    def build(values: Any) -> Any:
        channels = 4
        for block in range(2):
            made = []
            for branch, outputs in enumerate((2, 4, 2)):
                filters = weights(f"filters{block}{branch}", [1, 1, channels, outputs], dtype)
                made.append(tf.tanh(tf.nn.conv2d(values, filters, 1, "SAME")))
            filters = weights(f"wide{block}", [3, 3, 4, 4], dtype)
            made[1] = tf.nn.conv2d(made[1], filters, 1, "SAME")
            values, channels = tf.concat(made, 3), 8
        return values

    return script_of(build, dtype, [_BATCH // 2, 8, 8, 4])


def recommender(dtype: tf.DType = tf.float32) -> Script:
    """Lookups in several tables, one of which is looked up twice, concatenated with numbers and fed
    to a perceptron, as in Naumov et al., "Deep learning recommendation model for personalization
    and recommendation systems" (2019)."""

    def build(values: Any) -> Any:
        rows = [tf.cast(tf.abs(values[:, n]) * 3, tf.int32) % 8 for n in range(4)]
        tables = [weights(f"table{n}", [8 + 8 * (n == 2), 4], dtype) for n in range(3)]
        found = [tf.gather(table, own) for table, own in zip(tables, rows, strict=False)]
        found.append(tf.gather(tables[0], rows[3]))
        found.append(tf.gather(tf.tanh(weights("table3", [8, 4], dtype)), rows[0]))
        numbers = tf.tanh(tf.matmul(values, weights("bottom", [_WIDTH, 8], dtype)))
        both = tf.concat([*found, numbers], 1)
        hidden = tf.nn.bias_add(
            tf.matmul(both, weights("top", [28, 12], dtype)), weights("bias", [12], dtype)
        )
        first, second, third = tf.split(tf.nn.relu(hidden), 3, 1)
        return tf.matmul(tf.concat([third, second, first], 1), weights("last", [12, 4], dtype))

    return script_of(build, dtype, [_BATCH, _WIDTH])


def mobile(dtype: tf.DType = tf.float32) -> Script:
    """Depthwise and pointwise convolutions, some with strides, and pools side by side, as in Howard
    et al., "MobileNets" (2017)."""

    def build(values: Any) -> Any:
        for block, stride in enumerate((1, 2)):
            filters = weights(f"depth{block}", [3, 3, 4, 1], dtype)
            deep = tf.nn.depthwise_conv2d(values, filters, [1, stride, stride, 1], "SAME")
            wide = [
                tf.nn.conv2d(
                    values, weights(f"wide{block}{n}", [3, 3, 4, 2], dtype), stride, "SAME"
                )
                for n in range(2)
            ]
            low = tf.nn.avg_pool2d(values, 3, stride, "SAME")
            most = tf.nn.max_pool2d(values, 3, stride, "SAME")
            joined = tf.concat([deep, *wide, low + most], 3)
            halves = [
                tf.nn.conv2d(joined, weights(f"point{block}{n}", [1, 1, 12, 2], dtype), 1, "VALID")
                for n in range(2)
            ]
            values = tf.concat(halves, 3)
            values = tf.nn.relu(values) if block else values
            values = tf.nn.max_pool2d(values, 2, 1, "VALID")
        return tf.nn.avg_pool2d(tf.concat([values, values * 0.5], 0), 2, 1, "VALID")

    return script_of(build, dtype, [_BATCH // 2, 8, 8, 4])


def encoder(dtype: tf.DType = tf.float32) -> Script:
    """Queries, keys and values as one product, split into heads by reshapes and transposes; scores
    by a transposed product; tied weights."""

    def build(values: Any) -> Any:
        rows, heads = _BATCH, 4
        together = tf.matmul(values, weights("together", [_WIDTH, 3 * _WIDTH], dtype))
        query, key, value = (
            tf.transpose(tf.reshape(each, [rows, heads, _WIDTH // heads]), [1, 0, 2])
            for each in tf.split(together, 3, 1)
        )
        scores = tf.matmul(query, key, transpose_b=True) + tf.matmul(key, query, transpose_b=True)
        mixed = tf.matmul(tf.nn.softmax(scores), value)
        mixed = tf.reshape(tf.transpose(mixed, [1, 0, 2]), [rows, _WIDTH])
        tied = weights("tied", [_WIDTH, _WIDTH], dtype)
        turned = tf.matmul(tf.nn.relu(mixed), tied, transpose_b=True)
        return tf.matmul(turned, tied) + tf.matmul(values, tied, transpose_b=True)

    return script_of(build, dtype, [_BATCH, _WIDTH])


def weights(name: str, shape: list[int], dtype: tf.DType, trainable: bool = True) -> Any:
    """A variable with random values that are the same in every script."""
    initializer = v1.glorot_uniform_initializer(seed=sum(map(ord, name)))
    return v1.get_variable(name, shape, dtype, initializer, trainable=trainable, use_resource=True)


def script_of(
    build: Callable[[Any], Any],
    dtype: tf.DType,
    shape: list[int],
    steps: int = _STEPS,
    tokens: int = 0,
) -> Script:
    """A script that minimises the mean square of a tensor by momentum.

    Args:
        build: makes the tensor from the placeholder.
        dtype: dtype of all numbers.
        shape: shape of the placeholder's values, the batch first.
        steps: number of steps.
        tokens: the placeholder's values are integers below this number; numbers of ``dtype`` if it
            is 0.
    """
    random = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default():
        given = v1.placeholder(tf.int32 if tokens else dtype, [None, *shape[1:]], name="given")
        loss = tf.reduce_mean(tf.square(build(given) - 0.5))
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)

    def drawn() -> Array:
        if tokens:
            return random.integers(tokens, size=shape).astype(np.int32)
        return random.normal(size=shape).astype(dtype.as_numpy_dtype)

    feeds: tuple[dict[str, Array], ...] = tuple({"given": drawn()} for _ in range(steps))
    return Script(graph, train.name, loss.name, feeds)


REWRITE_SCRIPTS: dict[str, Callable[[tf.DType], Script]] = {
    "adapters": adapters,
    "experts": experts,
    "branches": branches,
    "recommender": recommender,
    "mobile": mobile,
    "encoder": encoder,
    "mlp": functools.partial(mlp, steps=_STEPS),
    "lstm": SCRIPTS["lstm"],
    "transformer": SCRIPTS["transformer"],
    "vgg16": SCRIPTS["vgg16"],
    # The batch normalisations of this script magnify rounding from step to step.
    "wide_resnet": functools.partial(model_script, "wide_resnet", steps=3),
}
"""The scripts of ``python -m tests.oracles.equality.rewrites``, as functions of the dtype."""
