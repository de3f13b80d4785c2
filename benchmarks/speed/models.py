"""The timed training steps, each in its own graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from examples.models import lstm_language_model, transformer, vgg16, wide_resnet
from examples.models.parts import Tensor, dense, variable

__all__ = ["BATCHES", "MODELS", "Step", "Wrap", "training_step"]

v1 = tf.compat.v1
Array = npt.NDArray[Any]
Wrap = Callable[[Any], Any]
"""Wraps an optimizer, for example in one that sums gradients over ranks."""

_INTEGERS = 16  # fed classes and tokens are below this number


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A training step and a batch for it.

    Attributes:
        graph: the graph of the model, its gradients and updates.
        train: the operation of a step.
        feeds: random values for the placeholders.
    """

    graph: tf.Graph
    train: tf.Operation
    feeds: Mapping[tf.Tensor, Array]


@dataclass(frozen=True, slots=True, eq=False)
class _Losses:
    """Losses, each with the scope of the variables that it trains."""

    placeholders: Mapping[str, tf.Tensor]
    losses: tuple[tuple[tf.Tensor, str], ...]


def training_step(
    model: str, batch: int, wrap: Wrap = lambda optimizer: optimizer, strategy: Any = None
) -> Step:
    """A step of one of the `MODELS` by momentum, after the updates of moving averages.

    Args:
        model: name of the model.
        batch: number of fed examples.
        wrap: wraps each optimizer.
        strategy: a ``tf.distribute`` strategy under which the step is made, or None.
    """
    graph = tf.Graph()
    with graph.as_default():
        losses: list[_Losses] = []

        def train() -> tf.Operation:
            losses.append(MODELS[model]())
            return _train(losses[0], wrap)

        if strategy is None:
            trained = train()
        else:
            with strategy.scope():
                trained = strategy.group(strategy.run(train))
        random = np.random.default_rng(0)
        feeds = {given: _batch(given, batch, random) for given in losses[0].placeholders.values()}
    return Step(graph, trained, feeds)


def _train(made: _Losses, wrap: Wrap) -> tf.Operation:
    trains = []
    with v1.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        for loss, scope in made.losses:
            optimizer = wrap(v1.train.MomentumOptimizer(0.01, 0.9))
            trains.append(optimizer.minimize(loss, var_list=v1.trainable_variables(scope)))
    return tf.group(*trains) if len(trains) > 1 else trains[0]


def _batch(placeholder: tf.Tensor, batch: int, random: np.random.Generator) -> Array:
    shape = [batch, *placeholder.shape.as_list()[1:]]
    value: Any = random.normal(size=shape)
    if placeholder.dtype.is_integer:
        value = random.integers(_INTEGERS, size=shape)
    return np.asarray(value, placeholder.dtype.as_numpy_dtype)


def _alone(build: Callable[[], Any]) -> Callable[[], _Losses]:
    """A model with one loss, which trains all variables."""

    def made() -> _Losses:
        model = build()
        return _Losses(model.placeholders, ((model.loss, ""),))

    return made


def _mlp() -> _Losses:
    """Four dense layers of 2048 by 2048."""
    width = 2048
    images = v1.placeholder(tf.float32, [None, width], name="images")
    labels = v1.placeholder(tf.int32, [None], name="labels")
    values = images
    for layer in range(4):
        values = dense(values, width, f"layer{layer}")
        values = tf.nn.relu(values) if layer < 3 else values
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=values)
    return _Losses({"images": images, "labels": labels}, ((tf.reduce_mean(losses), ""),))


def _adapters() -> _Losses:
    """An encoder of Devlin et al. (2018) with two layers of width 512, whose frozen weights have
    trained differences of rank 8 (Hu et al., "LoRA: low-rank adaptation of large language
    models", 2022, equation 3), written as weights plus difference."""
    width, heads, length, rank = 512, 8, 32, 8

    def adapted(values: Tensor, outputs: int, name: str) -> Tensor:
        with v1.variable_scope(name):
            inputs = int(values.shape[-1])
            frozen = variable("weights", [inputs, outputs], tf.float32, trainable=False)
            down = variable("down", [inputs, rank], tf.float32)
            up = variable("up", [rank, outputs], tf.float32)
            return tf.matmul(values, frozen + tf.matmul(down, up))

    def normalised(values: Tensor, name: str) -> Tensor:
        with v1.variable_scope(name):
            scale = v1.get_variable("scale", [width], tf.float32, v1.ones_initializer())
            mean, variance = tf.nn.moments(values, [-1], keepdims=True)
            return (values - mean) * tf.math.rsqrt(variance + 1e-6) * scale

    def of_heads(values: Tensor) -> Tensor:
        apart = tf.reshape(values, [-1, length, heads, width // heads])
        return tf.transpose(apart, [0, 2, 1, 3])

    given = v1.placeholder(tf.float32, [None, length, width], name="given")
    labels = v1.placeholder(tf.int32, [None], name="labels")
    values = tf.reshape(given, [-1, width])
    for layer in range(2):
        with v1.variable_scope(f"layer{layer}"):
            query, key, value = (of_heads(adapted(values, width, n)) for n in ("q", "k", "v"))
            scores = tf.matmul(query, key, transpose_b=True) * (width // heads) ** -0.5
            mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
            mixed = adapted(tf.reshape(mixed, [-1, width]), width, "mixed")
            values = normalised(values + mixed, "attended")
            hidden = tf.nn.relu(adapted(values, 4 * width, "first"))
            values = normalised(values + adapted(hidden, width, "second"), "fed_forward")
    pooled = tf.reduce_mean(tf.reshape(values, [-1, length, width]), 1)
    scores = dense(pooled, _INTEGERS, "scores")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
    return _Losses({"given": given, "labels": labels}, ((tf.reduce_mean(losses), ""),))


def _gan() -> _Losses:
    """A generator of 32 by 32 images by transposed convolutions, and a convolutional critic."""
    noise = v1.placeholder(tf.float32, [None, 64], name="noise")
    images = v1.placeholder(tf.float32, [None, 32, 32, 3], name="images")
    with v1.variable_scope("generator"):
        values = tf.reshape(dense(noise, 4 * 4 * 128, "dense"), [-1, 4, 4, 128])
        for layer, channels in enumerate((64, 32, 3)):
            with v1.variable_scope(f"layer{layer}"):
                values = tf.nn.relu(_batch_norm(values))
                values = _transposed(values, channels)
        made = tf.tanh(values)
    real, fake = _told(images), _told(made)
    ones, zeros = tf.ones_like(real), tf.zeros_like(fake)
    entropy = tf.nn.sigmoid_cross_entropy_with_logits
    telling = tf.reduce_mean(entropy(labels=ones, logits=real))
    telling += tf.reduce_mean(entropy(labels=zeros, logits=fake))
    passing = tf.reduce_mean(entropy(labels=ones, logits=fake))
    return _Losses(
        {"noise": noise, "images": images}, ((telling, "discriminator"), (passing, "generator"))
    )


def _told(values: Tensor) -> Tensor:
    """The critic's score of each image, [batch, 1]."""
    with v1.variable_scope("discriminator", reuse=v1.AUTO_REUSE):
        for layer, channels in enumerate((32, 64, 128)):
            with v1.variable_scope(f"layer{layer}", reuse=v1.AUTO_REUSE):
                kernel = variable("kernel", [4, 4, int(values.shape[-1]), channels], tf.float32)
                values = tf.nn.conv2d(values, kernel, 2, "SAME")
                values = tf.nn.leaky_relu(_batch_norm(values) if layer else values)
        return dense(tf.reshape(values, [-1, 4 * 4 * 128]), 1, "dense")


def _transposed(values: Tensor, channels: int) -> Tensor:
    """Double the height and width by a transposed convolution."""
    _, height, width, inputs = values.shape.as_list()
    kernel = variable("kernel", [4, 4, channels, inputs], tf.float32)
    shape = tf.stack([tf.shape(values)[0], 2 * height, 2 * width, channels])
    made = tf.nn.conv2d_transpose(values, kernel, shape, 2, "SAME")
    return tf.ensure_shape(made, [None, 2 * height, 2 * width, channels])


def _batch_norm(values: Tensor) -> Tensor:
    channels = [int(values.shape[-1])]
    scale = v1.get_variable("scale", channels, tf.float32, v1.ones_initializer())
    offset = v1.get_variable("offset", channels, tf.float32, v1.zeros_initializer())
    return v1.nn.fused_batch_norm(values, scale, offset)[0]


MODELS: dict[str, Callable[[], _Losses]] = {
    "mlp": _mlp,
    "vgg16": _alone(lambda: vgg16(32, 1 / 2, 16, 256)),
    "vgg16_dense": _alone(lambda: vgg16(32, 1 / 4, 1000, 2048)),
    "wide_resnet": _alone(lambda: wide_resnet(14, 2, 32, 16, base_channels=16, small_images=True)),
    "lstm": _alone(lambda: lstm_language_model(512, 2, 6, 2048)),
    "transformer": _alone(lambda: transformer(2, 256, 4, 1024, 32, 32, 2048)),
    "gan": _gan,
    "adapters": _adapters,
}
"""For each name a function that builds the model in the default graph."""

BATCHES = {
    "mlp": 64,
    "vgg16": 32,
    "vgg16_dense": 32,
    "wide_resnet": 32,
    "lstm": 64,
    "transformer": 16,
    "gan": 32,
    "adapters": 16,
}
"""Numbers of examples of a step over all ranks."""
