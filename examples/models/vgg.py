"""VGG16: configuration D of Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale
Image Recognition" (2015), table 1. Thirteen convolutions of 3x3, five poolings, three dense layers.
"""

from __future__ import annotations

from typing import Any

import tensoropt as tf

from .parts import Model, Tensor, dense, variable

__all__ = ["vgg16", "vgg16_parameters", "vgg16_scores"]

BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(
    image_size: int = 224,
    width: float = 1.0,
    classes: int = 1000,
    dense_width: int = 4096,
    *,
    image_channels: int = 3,
    dropout: float = 0.0,
    dtype: Any = tf.float32,
) -> Model:
    """VGG16 and its cross entropy.

    Args:
        image_size: height and width of the images.
        width: multiplier of every convolution's channels.
        classes: number of classes.
        dense_width: width of the two hidden dense layers.
        image_channels: 3 for colour images.
        dropout: rate after the hidden dense layers; the paper's is 0.5.
        dtype: floating-point type.

    Returns:
        Placeholders ``images`` [batch, image_size, image_size, image_channels] and ``labels``
        [batch] (class numbers), loss, and scores [batch, classes].
    """
    images = tf.placeholder(dtype, [None, image_size, image_size, image_channels], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    scores = vgg16_scores(images, width, classes, dense_width, dropout)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
    return Model({"images": images, "labels": labels}, tf.reduce_mean(losses), scores)


def vgg16_scores(
    images: Tensor, width: float, classes: int, dense_width: int, dropout: float = 0.0
) -> Tensor:
    """Scores [batch, classes] of images [batch, height, width, channels].

    A second call shares the first one's variables: without dropout, for testing.
    """
    values = images
    with tf.variable_scope("vgg16", reuse=tf.AUTO_REUSE):
        for block, layers in enumerate(BLOCKS, 1):
            for layer, channels in enumerate(layers, 1):
                values = _convolution(values, _widened(channels, width), f"conv{block}_{layer}")
            values = tf.nn.max_pool2d(values, ksize=2, strides=2, padding="SAME")
        _, height, across, channels = values.shape.as_list()
        values = tf.reshape(values, [-1, height * across * channels])
        for layer in (1, 2):
            values = tf.nn.relu(dense(values, dense_width, f"dense{layer}"))
            if dropout:
                values = tf.nn.dropout(values, rate=dropout, seed=layer)
        return dense(values, classes, "scores")


def vgg16_parameters(
    image_size: int = 224,
    width: float = 1.0,
    classes: int = 1000,
    dense_width: int = 4096,
    image_channels: int = 3,
) -> int:
    """Number of parameters; 138,357,544 at the paper's sizes."""
    total, inputs, size = 0, image_channels, image_size
    for layers in BLOCKS:
        for channels in layers:
            outputs = _widened(channels, width)
            total += (9 * inputs + 1) * outputs
            inputs = outputs
        size = -(-size // 2)
    inputs *= size * size
    for outputs in (dense_width, dense_width, classes):
        total += (inputs + 1) * outputs
        inputs = outputs
    return total


def _convolution(values: Tensor, channels: int, name: str) -> Tensor:
    with tf.variable_scope(name):
        inputs = int(values.shape[-1])
        weights = variable(
            "weights", [3, 3, inputs, channels], values.dtype, tf.initializers.he_normal
        )
        bias = tf.get_variable("bias", [channels], values.dtype, tf.zeros_initializer())
        values = tf.nn.conv2d(values, weights, strides=1, padding="SAME")
        return tf.nn.relu(tf.nn.bias_add(values, bias))


def _widened(channels: int, width: float) -> int:
    return max(1, round(channels * width))
