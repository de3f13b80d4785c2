"""What the models share: the form of a model, and variables whose initial values are repeatable."""

from __future__ import annotations

import zlib
from math import prod
from typing import Any, NamedTuple

import tensoropt as tf

__all__ = ["Model", "Tensor", "dense", "parameter_count", "variable"]

Tensor = Any
"""A ``tf.Tensor``; TensorFlow has no types that mypy could read."""


class Model(NamedTuple):
    """A model's forward graph.

    Attributes:
        placeholders: what a training step feeds, by name; the first dimension is the batch.
        loss: mean loss over the batch, a scalar.
        scores: unscaled scores of each class, [batch, ..., classes].
    """

    placeholders: dict[str, Tensor]
    loss: Tensor
    scores: Tensor


def variable(
    name: str,
    shape: list[int],
    dtype: Any,
    initializer: Any = None,
    trainable: bool = True,
    **arguments: Any,
) -> Tensor:
    """A variable of the current scope; its seed follows from its name.

    Args:
        name: within the scope.
        shape: of the variable.
        dtype: floating point.
        initializer: class of an initializer that takes a seed; Glorot's uniform one if None.
        trainable: whether optimizers change it.
        arguments: to the initializer, besides its seed.
    """
    full_name = f"{tf.get_variable_scope().name}/{name}"
    make = initializer or tf.glorot_uniform_initializer
    seeded = make(seed=zlib.crc32(full_name.encode()) & 0x7FFFFFFF, **arguments)
    return tf.get_variable(name, shape, dtype, seeded, trainable=trainable)


def dense(values: Tensor, outputs: int, name: str) -> Tensor:
    """A fully connected layer without activation: [batch, n] to [batch, outputs]."""
    with tf.variable_scope(name):
        weights = variable("weights", [int(values.shape[-1]), outputs], values.dtype)
        bias = tf.get_variable("bias", [outputs], values.dtype, tf.zeros_initializer())
        return tf.nn.bias_add(tf.matmul(values, weights), bias)


def parameter_count() -> int:
    """Number of trainable parameters in the default graph."""
    return sum(prod(v.shape.as_list()) for v in tf.trainable_variables())
