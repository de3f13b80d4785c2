"""Training scripts for combinations of spaces: substitutions match, and branches are independent.

Sizes divide by 2, 3, 4, 6 and 8.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.oracles.equality.engine import Script
from tests.oracles.equality.rewrite_scripts import script_of, weights
from tests.oracles.equality.stage_scripts import towers

__all__ = ["COMBINATION_SCRIPTS", "STEPS"]

STEPS, _BATCH, _WIDTH, _HEADS = 3, 24, 24, 2


def gates(dtype: tf.DType) -> Script:
    """Layers of products that share a factor: gated sums, and a residual of two products."""

    def build(values: Any) -> Any:
        for layer in range(2):
            gate, other, third = (
                tf.matmul(values, weights(f"{name}{layer}", [_WIDTH, _WIDTH], dtype))
                for name in ("gate", "other", "third")
            )
            last = weights(f"last{layer}", [_WIDTH, _WIDTH], dtype)
            mixed = tf.sigmoid(gate) * tf.tanh(other)
            values = values + tf.tanh(tf.matmul(mixed, last) + tf.matmul(third, last))
        return values

    return script_of(build, dtype, [_BATCH, _WIDTH], STEPS)


def attention(dtype: tf.DType) -> Script:
    """Queries, keys and values of one input, by heads; a residual and two dense layers."""
    length, size = 4, _WIDTH // _HEADS

    def heads(values: Any) -> Any:
        return tf.transpose(tf.reshape(values, [-1, length, _HEADS, size]), [0, 2, 1, 3])

    def build(values: Any) -> Any:
        flat = tf.reshape(values, [-1, _WIDTH])
        query, key, value = (
            heads(tf.matmul(flat, weights(name, [_WIDTH, _WIDTH], dtype)))
            for name in ("query", "key", "value")
        )
        scores = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * size**-0.5)
        mixed = tf.reshape(tf.transpose(tf.matmul(scores, value), [0, 2, 1, 3]), [-1, _WIDTH])
        flat = flat + tf.matmul(mixed, weights("out", [_WIDTH, _WIDTH], dtype))
        inner = tf.tanh(tf.matmul(flat, weights("in", [_WIDTH, 2 * _WIDTH], dtype)))
        return flat + tf.matmul(inner, weights("down", [2 * _WIDTH, _WIDTH], dtype))

    return script_of(build, dtype, [_BATCH, length, _WIDTH], STEPS)


def inception(dtype: tf.DType) -> Script:
    """Two modules of convolutions and pooling side by side, as in Szegedy et al., "Going deeper
    with convolutions" (2015)."""

    def build(values: Any) -> Any:
        for block in range(2):
            channels = values.shape[-1]
            made = []
            for branch in range(3):
                filters = weights(f"one{block}{branch}", [1, 1, channels, 4], dtype)
                made.append(tf.tanh(tf.nn.conv2d(values, filters, 1, "SAME")))
            filters = weights(f"wide{block}", [3, 3, 4, 4], dtype)
            made[1] = tf.tanh(tf.nn.conv2d(made[1], filters, 1, "SAME"))
            pooled = tf.nn.avg_pool2d(values, 3, 1, "SAME")
            filters = weights(f"pooled{block}", [1, 1, channels, 4], dtype)
            made.append(tf.nn.conv2d(pooled, filters, 1, "SAME"))
            values = tf.concat(made, 3)
        flat = tf.reduce_mean(values, [1, 2])
        return tf.matmul(flat, weights("scores", [16, 8], dtype))

    return script_of(build, dtype, [_BATCH, 8, 8, 4], STEPS)


def mixing(dtype: tf.DType) -> Script:
    """Convolutions with batch normalisation side by side, and a mean over the examples, so that the
    batch cannot be computed in parts."""

    def normalised(values: Any, name: str) -> Any:
        scale, offset = (weights(f"{part}{name}", [4, 1], dtype) for part in ("scale", "offset"))
        scale, offset = scale[:, 0] + 1, offset[:, 0]
        if dtype == tf.float32:  # the kernel has no other dtype
            return tf.compat.v1.nn.fused_batch_norm(values, scale, offset)[0]
        mean, variance = tf.nn.moments(values, [0, 1, 2])
        return tf.nn.batch_normalization(values, mean, variance, offset, scale, 1e-3)

    def build(values: Any) -> Any:
        made = []
        for branch in range(2):
            filters = weights(f"one{branch}", [1, 1, 4, 4], dtype)
            first = tf.tanh(normalised(tf.nn.conv2d(values, filters, 1, "SAME"), f"_{branch}"))
            filters = weights(f"wide{branch}", [3, 3, 4, 4], dtype)
            made.append(tf.nn.conv2d(first, filters, 1, "SAME"))
        flat = tf.reduce_mean(tf.concat(made, 3), [1, 2])
        flat = flat - tf.reduce_mean(flat, 0)
        return tf.matmul(flat, weights("scores", [8, 8], dtype))

    return script_of(build, dtype, [_BATCH, 8, 8, 4], STEPS)


def embeddings(dtype: tf.DType) -> Script:
    """Rows of tables, concatenated for two products; and sums of pairs of rows."""
    rows = 24

    def build(tokens: Any) -> Any:
        looked_up = [
            tf.gather(weights(f"table{n}", [rows, 8], dtype), tokens[:, n]) for n in range(4)
        ]
        both = [tf.concat(looked_up[:2], 1), tf.concat(looked_up[2:], 1)]
        wide = [
            tf.matmul(pair, weights(f"wide{n}", [16, _WIDTH], dtype)) for n, pair in enumerate(both)
        ]
        everything = tf.concat(looked_up, 1)
        first = tf.matmul(everything, weights("first", [32, _WIDTH], dtype))
        second = tf.matmul(everything, weights("second", [32, _WIDTH], dtype))
        made = tf.tanh(wide[0] + wide[1]) + tf.sigmoid(first) * second
        return tf.matmul(made, weights("last", [_WIDTH, 8], dtype))

    return script_of(build, dtype, [_BATCH, 4], STEPS, rows)


COMBINATION_SCRIPTS: dict[str, Callable[[tf.DType], Script]] = {
    "gates": gates,
    "attention": attention,
    "inception": inception,
    "mixing": mixing,
    "embeddings": embeddings,
    "towers": functools.partial(towers, steps=STEPS),
}
"""The scripts of ``python -m tests.oracles.equality.combinations``, as functions of the dtype."""
