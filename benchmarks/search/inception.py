"""Inception-v3: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision" (2015).

Table 1 and Figures 5 to 7 and 10. Where the paper gives no sizes, they are those of the published
weights. Batch normalisation (with scale and offset) and ReLU follow every convolution. The
auxiliary classifier, which only training has, is left out, as in the known count of 23.8 million
parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensoropt as tf
from examples.models.parts import Model, dense, variable

__all__ = ["inception_v3"]

EPSILON = 1e-3
CLASSES, IMAGE_SIZE = 1000, 299

Tensor = Any


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A layer of a branch: its channels, the rows and columns of its window, its stride and its
    padding."""

    channels: int
    rows: int = 1
    columns: int = 1
    stride: int = 1
    padding: str = "SAME"


def inception_v3() -> Model:
    """An Inception-v3 in training, without dropout, and its cross entropy.

    Returns:
        Placeholders ``images`` [batch, 299, 299, 3] and ``labels`` [batch] (class numbers), loss,
            and scores [batch, 1000].
    """
    images = tf.placeholder(tf.float32, [None, IMAGE_SIZE, IMAGE_SIZE, 3], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    with tf.variable_scope("inception_v3"):
        values = _stem(images)
        for number, pooled in enumerate((32, 64, 64)):
            values = _mixed(f"mixed5{'bcd'[number]}", values, _FIVE_BY_FIVE, pooled)
        values = _reduced("mixed6a", values, _FIRST_REDUCTION)
        for number, inner in enumerate((128, 160, 160, 192)):
            values = _mixed(f"mixed6{'bcde'[number]}", values, _seven_by_seven(inner), 192)
        values = _reduced("mixed7a", values, _SECOND_REDUCTION)
        for number in range(2):
            values = _expanded(f"mixed7{'bc'[number]}", values)
        values = tf.reduce_mean(values, axis=[1, 2])
        scores = dense(values, CLASSES, "scores")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
    return Model({"images": images, "labels": labels}, tf.reduce_mean(losses), scores)


def _stem(values: Tensor) -> Tensor:
    """Convolutions and pools without padding, down to 35 by 35 and 192 channels."""
    first = (
        _Convolution(32, 3, 3, 2, "VALID"),
        _Convolution(32, 3, 3, 1, "VALID"),
        _Convolution(64, 3, 3),
    )
    second = _Convolution(80), _Convolution(192, 3, 3, 1, "VALID")
    with tf.variable_scope("stem"):
        for number, layers in enumerate((first, second)):
            values = _branch(f"part{number + 1}", values, layers)
            values = tf.nn.max_pool2d(values, ksize=3, strides=2, padding="VALID")
    return values


def _seven_by_seven(inner: int) -> tuple[tuple[_Convolution, ...], ...]:
    """The block of Figure 6: a window of 7 by 7 is a 1 by 7 window after a 7 by 1 window."""
    row, column = (1, 7), (7, 1)
    return (
        (_Convolution(192),),
        (_Convolution(inner), _Convolution(inner, *row), _Convolution(192, *column)),
        (
            _Convolution(inner),
            _Convolution(inner, *column),
            _Convolution(inner, *row),
            _Convolution(inner, *column),
            _Convolution(192, *row),
        ),
    )


# Figure 5, with the 5 by 5 window in one branch.
_FIVE_BY_FIVE = (
    (_Convolution(64),),
    (_Convolution(48), _Convolution(64, 5, 5)),
    (_Convolution(64), _Convolution(96, 3, 3), _Convolution(96, 3, 3)),
)
# Figure 10: strided convolutions beside a strided pool.
_FIRST_REDUCTION = (
    (_Convolution(384, 3, 3, 2, "VALID"),),
    (_Convolution(64), _Convolution(96, 3, 3), _Convolution(96, 3, 3, 2, "VALID")),
)
_SECOND_REDUCTION = (
    (_Convolution(192), _Convolution(320, 3, 3, 2, "VALID")),
    (
        _Convolution(192),
        _Convolution(192, 1, 7),
        _Convolution(192, 7, 1),
        _Convolution(192, 3, 3, 2, "VALID"),
    ),
)


def _mixed(
    name: str, values: Tensor, branches: Sequence[Sequence[_Convolution]], pooled: int
) -> Tensor:
    """Branches of convolutions, and a branch that averages first, joined along the channels."""
    with tf.variable_scope(name):
        parts = [_branch(f"branch{n + 1}", values, own) for n, own in enumerate(branches)]
        parts.append(_pooled(values, pooled))
        return tf.concat(parts, axis=3)


def _reduced(name: str, values: Tensor, branches: Sequence[Sequence[_Convolution]]) -> Tensor:
    """A block that halves rows and columns: strided branches and a strided maximum."""
    with tf.variable_scope(name):
        parts = [_branch(f"branch{n + 1}", values, own) for n, own in enumerate(branches)]
        parts.append(tf.nn.max_pool2d(values, ksize=3, strides=2, padding="VALID"))
        return tf.concat(parts, axis=3)


def _expanded(name: str, values: Tensor) -> Tensor:
    """The block of Figure 7: two branches end in a 1 by 3 and a 3 by 1 window side by side."""
    with tf.variable_scope(name):
        parts = [_branch("branch1", values, (_Convolution(320),))]
        for number, layers in enumerate(
            ((_Convolution(384),), (_Convolution(448), _Convolution(384, 3, 3)))
        ):
            before = _branch(f"branch{number + 2}", values, layers)
            for end, window in (("row", (1, 3)), ("column", (3, 1))):
                last = (_Convolution(384, *window),)
                parts.append(_branch(f"branch{number + 2}_{end}", before, last))
        parts.append(_pooled(values, 192))
        return tf.concat(parts, axis=3)


def _pooled(values: Tensor, channels: int) -> Tensor:
    values = tf.nn.avg_pool2d(values, ksize=3, strides=1, padding="SAME")
    return _branch("pooled", values, (_Convolution(channels),))


def _branch(name: str, values: Tensor, layers: Sequence[_Convolution]) -> Tensor:
    with tf.variable_scope(name):
        for number, layer in enumerate(layers):
            values = _convolution(f"convolution{number + 1}", values, layer)
    return values


def _convolution(name: str, values: Tensor, layer: _Convolution) -> Tensor:
    """A convolution, batch normalisation with the batch's statistics, and ReLU."""
    dtype, inputs = values.dtype, int(values.shape[-1])
    with tf.variable_scope(name):
        shape = [layer.rows, layer.columns, inputs, layer.channels]
        weights = variable("weights", shape, dtype, tf.initializers.he_normal)
        values = tf.nn.conv2d(values, weights, strides=layer.stride, padding=layer.padding)
        scale = tf.get_variable("scale", [layer.channels], dtype, tf.ones_initializer())
        offset = tf.get_variable("offset", [layer.channels], dtype, tf.zeros_initializer())
        values, mean, variance = tf.nn.fused_batch_norm(values, scale, offset, epsilon=EPSILON)
        del mean, variance
        return tf.nn.relu(values)
