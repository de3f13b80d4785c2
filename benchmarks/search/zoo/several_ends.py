"""Graphs with several ends: two branches with shared weights, and three heads on one trunk."""

from __future__ import annotations

import tensoropt as tf
from benchmarks.search.zoo.parts import biased, convolution, cross_entropy, flattened, transposed
from examples.models.parts import Tensor, dense

__all__ = ["siamese", "three_outputs"]


def siamese(layers: int) -> None:
    """Koch et al., "Siamese Neural Networks for One-shot Image Recognition" (2015), with the
    contrastive loss of Hadsell et al. (2006).

    Args:
        layers: number of convolution layers, at most 4.
    """
    same = tf.placeholder(tf.float32, [None], name="same")
    found = []
    for number in range(2):
        images = tf.placeholder(tf.float32, [None, 104, 104, 1], name=f"images{number + 1}")
        with tf.variable_scope("branch", reuse=bool(number)):
            found.append(_described(images, layers))
    squared = tf.reduce_sum(tf.squared_difference(*found), axis=1)
    apart = tf.maximum(1.0 - tf.sqrt(squared + 1e-12), 0.0)
    loss = tf.reduce_mean(same * squared + (1.0 - same) * tf.square(apart))
    tf.train.AdamOptimizer(1e-4).minimize(loss)


def three_outputs(stages: int) -> None:
    """A convolutional trunk for a class, a box and a mask, each with a loss, and one optimizer."""
    size = 224
    images = tf.placeholder(tf.float32, [None, size, size, 3], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    boxes = tf.placeholder(tf.float32, [None, 4], name="boxes")
    masks = tf.placeholder(tf.int32, [None, size, size], name="masks")
    values = images
    for stage in range(stages):
        for part in range(2):
            channels = min(512, 64 * 2**stage)
            name = f"stage{stage + 1}_{part + 1}"
            values = tf.nn.relu(convolution(values, channels, 3, 1, name))
        values = tf.nn.max_pool2d(values, ksize=2, strides=2, padding="SAME")
    pooled = tf.reduce_mean(values, axis=[1, 2])
    hidden = tf.nn.relu(dense(pooled, 1024, "class_hidden"))
    loss = cross_entropy(dense(hidden, 1000, "class"), labels)
    hidden = tf.nn.relu(dense(flattened(values), 1024, "box_hidden"))
    off = tf.abs(dense(hidden, 4, "box") - boxes)
    loss += tf.reduce_mean(tf.where(off < 1.0, 0.5 * tf.square(off), off - 0.5))
    for stage in range(stages):
        channels = max(16, 256 // 2**stage)
        name = f"finer{stage + 1}"
        values = tf.nn.relu(biased(transposed(values, channels, 4, name), name))
    loss += 0.5 * cross_entropy(convolution(values, 21, 1, 1, "mask"), masks)
    tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)


def _described(images: Tensor, layers: int) -> Tensor:
    values = images
    sizes = ((64, 10), (128, 7), (128, 4), (256, 4))[:layers]
    for number, (channels, window) in enumerate(sizes):
        values = tf.nn.relu(convolution(values, channels, window, 1, f"layer{number + 1}"))
        if number < 3:
            values = tf.nn.max_pool2d(values, ksize=2, strides=2, padding="SAME")
    return dense(flattened(values), 4096, "description")
