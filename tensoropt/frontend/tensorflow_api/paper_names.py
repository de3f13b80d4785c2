"""Names in the paper's Listing 1 that ``tf.compat.v1`` does not have in this place."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tensoropt.frontend.tensorflow_api.graph_mode import enable_graph_mode

__all__ = ["GradientDescentOptimizer", "softmax_cross_entropy"]


class GradientDescentOptimizer(tf.compat.v1.train.GradientDescentOptimizer):  # type: ignore[misc]
    """TensorFlow's optimizer; its learning rate has a default, as in the paper's Listing 1."""

    def __init__(
        self,
        learning_rate: Any = 0.01,
        use_locking: bool = False,
        name: str = "GradientDescent",
    ) -> None:
        enable_graph_mode()
        super().__init__(learning_rate, use_locking, name)


def softmax_cross_entropy(labels: Any, logits: Any, name: str = "softmax_cross_entropy") -> Any:
    """Mean cross entropy over the batch, a scalar.

    Args:
        labels: class numbers (integers, one dimension less than logits), or a distribution over
            the classes (same shape as logits).
        logits: unscaled scores, shape [batch, ..., classes].
        name: name scope of the operators.

    Raises:
        ValueError: TensorFlow's, if the shapes do not agree.
    """
    with tf.name_scope(name):
        labels = tf.convert_to_tensor(labels)
        logits = tf.convert_to_tensor(logits)
        if labels.dtype.is_integer and labels.shape.rank != logits.shape.rank:
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        else:
            labels = tf.cast(labels, logits.dtype)
            loss = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        return tf.reduce_mean(loss)
