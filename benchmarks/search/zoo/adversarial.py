"""Graphs of a generator with a critic, and of a critic with a gradient of a gradient."""

from __future__ import annotations

import tensoropt as tf
from benchmarks.search.zoo.parts import (
    batch_normalised,
    biased,
    flattened,
    plain_convolution,
    transposed,
)
from examples.models.parts import Tensor, dense, variable

__all__ = ["gan", "penalty"]


def gan(stages: int) -> None:
    """Radford et al., "Unsupervised Representation Learning with Deep Convolutional GANs" (2015):
    one step of both optimizers.

    Args:
        stages: number of resolutions, each twice as fine as the one before; 3 for 32 pixels.
    """
    size = 4 * 2**stages
    real = tf.placeholder(tf.float32, [None, size, size, 3], name="real")
    noise = tf.placeholder(tf.float32, [None, 100], name="noise")
    with tf.variable_scope("generator"):
        made = _generated(noise, stages)
    with tf.variable_scope("critic"):
        of_real = _judged(real, stages)
    with tf.variable_scope("critic", reuse=True):
        of_made = _judged(made, stages)
    losses = {
        "generator": _entropy(of_made, True),
        "critic": _entropy(of_real, True) + _entropy(of_made, False),
    }
    for part, loss in losses.items():
        own = tf.trainable_variables(part)
        tf.train.AdamOptimizer(2e-4, beta1=0.5, name=f"{part}_adam").minimize(loss, var_list=own)


def penalty(stages: int) -> None:
    """Gulrajani et al., "Improved Training of Wasserstein GANs" (2017): the critic's step."""
    size = 4 * 2**stages
    real = tf.placeholder(tf.float32, [None, size, size, 3], name="real")
    made = tf.placeholder(tf.float32, [None, size, size, 3], name="made")
    share = tf.random_uniform([tf.shape(real)[0], 1, 1, 1], seed=1)
    between = real + share * (made - real)
    judged = []
    for reuse, images in ((None, real), (True, made), (True, between)):
        with tf.variable_scope("critic", reuse=reuse):
            judged.append(_judged(images, stages, normalise=False))
    (gradient,) = tf.gradients(judged[2], [between])
    norm = tf.sqrt(tf.reduce_sum(tf.square(gradient), axis=[1, 2, 3]) + 1e-12)
    loss = tf.reduce_mean(judged[1]) - tf.reduce_mean(judged[0])
    loss += 10.0 * tf.reduce_mean(tf.square(norm - 1.0))
    tf.train.AdamOptimizer(1e-4, beta1=0.5).minimize(loss)


def _generated(noise: Tensor, stages: int) -> Tensor:
    channels = 64 * 2**stages
    values = tf.reshape(
        tf.matmul(noise, variable("first", [100, 16 * channels], noise.dtype)), [-1, 4, 4, channels]
    )
    values = tf.nn.relu(batch_normalised(values, "normalised"))
    for stage in range(stages):
        channels = 3 if stage + 1 == stages else channels // 2
        name = f"stage{stage + 1}"
        values = transposed(values, channels, 5, name)
        if stage + 1 < stages:
            values = tf.nn.relu(batch_normalised(values, name))
    return tf.tanh(biased(values, name))


def _judged(values: Tensor, stages: int, *, normalise: bool = True) -> Tensor:
    for stage in range(stages):
        name = f"stage{stage + 1}"
        values = plain_convolution(values, 64 * 2**stage, 5, 2, name)
        normalised = normalise and stage > 0
        values = batch_normalised(values, name) if normalised else biased(values, name)
        values = tf.nn.leaky_relu(values)
    return dense(flattened(values), 1, "score")


def _entropy(scores: Tensor, real: bool) -> Tensor:
    labels = tf.ones_like(scores) if real else tf.zeros_like(scores)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=scores))
