"""A step with a sparse gradient, for tests of stages."""

from __future__ import annotations

import tensoropt as tf
from examples.models import Model

__all__ = ["looked_up"]


def looked_up() -> Model:
    """Rows of a small table through a dense layer; the gradient by the table is sparse."""
    numbers = tf.placeholder(tf.int32, [None], name="numbers")
    table = tf.get_variable("table", [4, 8], tf.float32)
    weights = tf.get_variable("weights", [8, 8], tf.float32)
    scores = tf.matmul(tf.nn.embedding_lookup(table, numbers), weights)
    return Model({"numbers": numbers}, tf.reduce_mean(tf.square(scores)), scores)
