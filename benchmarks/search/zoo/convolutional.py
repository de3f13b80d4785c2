"""Convolutional networks whose layers are joined in other ways than one after another."""

from __future__ import annotations

import tensoropt as tf
from benchmarks.search.zoo.parts import (
    batch_normalised,
    biased,
    convolution,
    cross_entropy,
    plain_convolution,
    transposed,
)
from examples.models.parts import Tensor, dense, variable

__all__ = ["branches", "densenet", "mobilenet", "squeeze", "unet"]


def unet(stages: int) -> None:
    """Ronneberger et al., "U-Net" (2015), padded, for images of 256 pixels."""
    size, classes, channels = 256, 21, 64
    images = tf.placeholder(tf.float32, [None, size, size, 3], name="images")
    labels = tf.placeholder(tf.int32, [None, size, size], name="labels")
    values, skips = images, []
    for stage in range(stages):
        values = _twice(values, channels * 2**stage, f"down{stage + 1}")
        skips.append(values)
        values = tf.nn.max_pool2d(values, ksize=2, strides=2, padding="SAME")
    values = _twice(values, channels * 2**stages, "bottom")
    for stage in reversed(range(stages)):
        name = f"finer{stage + 1}"
        values = biased(transposed(values, channels * 2**stage, 2, name), name)
        values = tf.concat([skips[stage], values], axis=3)
        values = _twice(values, channels * 2**stage, f"up{stage + 1}")
    loss = cross_entropy(convolution(values, classes, 1, 1, "scores"), labels)
    tf.train.MomentumOptimizer(0.01, 0.99).minimize(loss)


def densenet(layers: int) -> None:
    """Huang et al., "Densely Connected Convolutional Networks" (2016), with 121 layers.

    Args:
        layers: most layers of a block.
    """
    growth = 32
    images, labels = _images(224)
    values = _activated(convolution(images, 2 * growth, 7, 2, "stem"), "stem")
    values = tf.nn.max_pool2d(values, ksize=3, strides=2, padding="SAME")
    for block, count in enumerate((6, 12, 24, 16)):
        for number in range(min(count, layers)):
            with tf.variable_scope(f"block{block + 1}_layer{number + 1}"):
                narrow = plain_convolution(_activated(values, "first"), 4 * growth, 1, 1, "narrow")
                added = plain_convolution(_activated(narrow, "second"), growth, 3, 1, "added")
                values = tf.concat([values, added], axis=3)
        if block < 3:
            half = int(values.shape[-1]) // 2
            name = f"transition{block + 1}"
            values = plain_convolution(_activated(values, name), half, 1, 1, name)
            values = tf.nn.avg_pool2d(values, ksize=2, strides=2, padding="SAME")
    _classified(_activated(values, "last"), labels)


def mobilenet(repeats: int) -> None:
    """Sandler et al., "MobileNetV2" (2018), Table 2, with moving averages of statistics.

    Args:
        repeats: most repeats of a row of the table.
    """
    images, labels = _images(224)
    values = tf.nn.relu6(_averaged(plain_convolution(images, 32, 3, 2, "stem"), "stem"))
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip
    for row, (expansion, channels, count, stride) in enumerate(rows):
        for number in range(min(count, repeats)):
            with tf.variable_scope(f"row{row + 1}_{number + 1}"):
                values = _inverted(values, expansion, channels, 1 if number else stride)
    values = tf.nn.relu6(_averaged(plain_convolution(values, 1280, 1, 1, "last"), "last"))
    _classified(values, labels)


def squeeze(blocks: int) -> None:
    """Hu et al., "Squeeze-and-Excitation Networks" (2017), on a ResNet of 50 layers.

    Args:
        blocks: most blocks of a stage.
    """
    images, labels = _images(224)
    values = _activated(plain_convolution(images, 64, 7, 2, "stem"), "stem")
    values = tf.nn.max_pool2d(values, ksize=3, strides=2, padding="SAME")
    for stage, count in enumerate((3, 4, 6, 3)):
        for number in range(min(count, blocks)):
            with tf.variable_scope(f"stage{stage + 1}_{number + 1}"):
                stride = 2 if stage and not number else 1
                values = _excited(values, 64 * 2**stage, stride)
    _classified(values, labels)


def branches(blocks: int) -> None:
    """Xie et al., "Aggregated Residual Transformations" (2016). Each block has 16 separate
    towers."""
    towers, width = 16, 8
    images, labels = _images(112)
    values = _activated(plain_convolution(images, 256, 7, 2, "stem"), "stem")
    values = tf.nn.max_pool2d(values, ksize=3, strides=2, padding="SAME")
    for block in range(blocks):
        with tf.variable_scope(f"block{block + 1}"):
            parts = []
            for tower in range(towers):
                with tf.variable_scope(f"tower{tower + 1}"):
                    inner = _activated(plain_convolution(values, width, 1, 1, "narrow"), "narrow")
                    parts.append(
                        _activated(plain_convolution(inner, width, 3, 1, "window"), "window")
                    )
            joined = plain_convolution(tf.concat(parts, axis=3), 256, 1, 1, "widen")
            values = tf.nn.relu(values + batch_normalised(joined, "widen"))
    _classified(values, labels)


def _images(size: int) -> tuple[Tensor, Tensor]:
    images = tf.placeholder(tf.float32, [None, size, size, 3], name="images")
    return images, tf.placeholder(tf.int32, [None], name="labels")


def _classified(values: Tensor, labels: Tensor) -> None:
    """Add global pooling, scores, and a step of the optimizer after the updates of moving
    averages."""
    loss = cross_entropy(dense(tf.reduce_mean(values, axis=[1, 2]), 1000, "scores"), labels)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def _activated(values: Tensor, name: str) -> Tensor:
    return tf.nn.relu(batch_normalised(values, f"{name}_normalised"))


def _averaged(values: Tensor, name: str) -> Tensor:
    return batch_normalised(values, f"{name}_normalised", moving=True)


def _twice(values: Tensor, channels: int, name: str) -> Tensor:
    for number in range(2):
        values = tf.nn.relu(convolution(values, channels, 3, 1, f"{name}_{number + 1}"))
    return values


def _inverted(values: Tensor, expansion: int, channels: int, stride: int) -> Tensor:
    """Widen, filter each channel by itself, and narrow, with a residual if shapes allow."""
    inputs, inner = int(values.shape[-1]), values
    if expansion > 1:
        inner = plain_convolution(values, expansion * inputs, 1, 1, "widen")
        inner = tf.nn.relu6(_averaged(inner, "widen"))
    shape = [3, 3, int(inner.shape[-1]), 1]
    weights = variable("depthwise", shape, values.dtype, tf.initializers.he_normal)
    inner = tf.nn.depthwise_conv2d(inner, weights, [1, stride, stride, 1], "SAME")
    inner = tf.nn.relu6(_averaged(inner, "depthwise"))
    inner = _averaged(plain_convolution(inner, channels, 1, 1, "narrow"), "narrow")
    return values + inner if stride == 1 and inputs == channels else inner


def _excited(values: Tensor, width: int, stride: int) -> Tensor:
    """A bottleneck whose channels are scaled by a function of their global averages."""
    outputs = 4 * width
    inner = _activated(plain_convolution(values, width, 1, 1, "narrow"), "narrow")
    inner = _activated(plain_convolution(inner, width, 3, stride, "window"), "window")
    inner = batch_normalised(plain_convolution(inner, outputs, 1, 1, "widen"), "widen_normalised")
    pooled = tf.nn.relu(dense(tf.reduce_mean(inner, axis=[1, 2]), outputs // 16, "squeeze"))
    scale = tf.sigmoid(dense(pooled, outputs, "excite"))
    inner *= tf.reshape(scale, [-1, 1, 1, outputs])
    if int(values.shape[-1]) != outputs:
        values = batch_normalised(
            plain_convolution(values, outputs, 1, stride, "skip"), "skip_normalised"
        )
    return tf.nn.relu(values + inner)
