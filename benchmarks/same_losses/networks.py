"""The trained networks, each with the batch of every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from examples.drawn_digits import digit_images
from examples.library_text import Characters, library_text
from examples.models import lstm_language_model
from examples.models.parts import Tensor, dense, variable

__all__ = ["NETWORKS", "Network", "Training"]

v1 = tf.compat.v1
Array = npt.NDArray[Any]
Batches = Callable[[int], dict[str, Array]]
"""Returns the values of the placeholders for a step, by name."""

_BATCH = 32
_HIDDEN, _LENGTH, _CHARACTERS = 128, 6, 64
_SIDE, _DENSE, _RANK = 8, 512, 8


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """A training step in the default graph.

    Attributes:
        placeholders: by name.
        loss: the loss before the step's update, a scalar.
        train: the operation of a step.
    """

    placeholders: Mapping[str, Tensor]
    loss: Tensor
    train: tf.Operation


@dataclass(frozen=True, slots=True)
class Network:
    """A network and its data.

    Attributes:
        build: makes its training step in the default graph.
        batches: returns the function from the number of a step to its batch.
        batch: number of examples of a step.
    """

    build: Callable[[], Training]
    batches: Callable[[], Batches]
    batch: int = _BATCH


def _language_model() -> Training:
    """An LSTM by Adam, with clipped gradients, as in ``examples/train_language_model.py``."""
    model = lstm_language_model(_HIDDEN, 1, _LENGTH, _CHARACTERS)
    optimizer = v1.train.AdamOptimizer(0.003)
    gradients, variables = zip(*optimizer.compute_gradients(model.loss), strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
    train = optimizer.apply_gradients(zip(clipped, variables, strict=True))
    return Training(model.placeholders, model.loss, train)


def _sequences() -> Batches:
    text = library_text()
    numbers = Characters(text, _CHARACTERS).encode(text)

    def batch(step: int) -> dict[str, Array]:
        random = np.random.default_rng(step)
        places = random.integers(len(numbers) - _LENGTH, size=_BATCH)[:, None]
        places = places + np.arange(_LENGTH)
        return {"tokens": numbers[places], "targets": numbers[places + 1]}

    return batch


def _images() -> Training:
    """Two convolutions and three dense layers, by momentum.

    All functions are smooth: where a rectifier or a maximum has a kink, a difference in the last
    bit makes another gradient, and trainings part at once.

    The second dense layer adds a trained difference of low rank to frozen weights (Hu et al.,
    "LoRA: low-rank adaptation of large language models", 2022), which a substitution multiplies
    apart.
    """
    images = v1.placeholder(tf.float32, [None, _SIDE, _SIDE, 1], name="images")
    labels = v1.placeholder(tf.int32, [None], name="labels")
    values = images
    for layer, channels in enumerate((16, 32)):
        with v1.variable_scope(f"convolution{layer}"):
            kernel = variable("kernel", [3, 3, int(values.shape[-1]), channels], tf.float32)
            bias = v1.get_variable("bias", [channels], initializer=v1.zeros_initializer())
            values = tf.tanh(tf.nn.bias_add(tf.nn.conv2d(values, kernel, 1, "SAME"), bias))
            values = tf.nn.avg_pool2d(values, 2, 2, "SAME")
    flat = tf.reshape(values, [-1, (_SIDE // 4) ** 2 * 32])
    hidden = tf.tanh(dense(flat, _DENSE, "hidden"))
    with v1.variable_scope("adapted"):
        frozen = variable("frozen", [_DENSE, _DENSE], tf.float32, trainable=False)
        down = variable("down", [_DENSE, _RANK], tf.float32)
        up = variable("up", [_RANK, _DENSE], tf.float32)
        hidden = tf.tanh(tf.matmul(hidden, frozen + tf.matmul(down, up)))
    scores = dense(hidden, 10, "scores")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
    loss = tf.reduce_mean(losses)
    train = v1.train.MomentumOptimizer(0.003, 0.9).minimize(loss)
    return Training({"images": images, "labels": labels}, loss, train)


def _digits() -> Batches:
    images, labels, _, _ = digit_images(0, [_SIDE, _SIDE, 1])

    def batch(step: int) -> dict[str, Array]:
        chosen = np.random.default_rng(step).integers(len(labels), size=_BATCH)
        return {"images": images[chosen], "labels": labels[chosen]}

    return batch


NETWORKS: Mapping[str, Network] = MappingProxyType(
    {
        "language_model": Network(_language_model, _sequences),
        "images": Network(_images, _digits),
    }
)
"""The networks by name."""
