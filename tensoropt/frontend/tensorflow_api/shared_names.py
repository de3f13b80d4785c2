"""Names that both TensorOpt and TensorFlow have, and the choice between the two; names of the
paper's Listing 1 that ``tf.compat.v1`` does not have in this place."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType
from typing import Any, NoReturn

import tensorflow as tf

from tensoropt import errors
from tensoropt.frontend.job import job
from tensoropt.frontend.tensorflow_api.graph_mode import enable_graph_mode
from tensoropt.tensorflow_private import copies_of_v1

__all__ = [
    "GradientDescentOptimizer",
    "MissingModule",
    "disable_control_flow_v2",
    "disable_v2_behavior",
    "install",
    "rank",
    "size",
    "softmax_cross_entropy",
]

_NONE = object()
_KERAS, _LEGACY_KERAS = "tf_keras", "TF_USE_LEGACY_KERAS"
_disable_v2_behavior = tf.compat.v1.disable_v2_behavior


def install() -> None:
    """Adapt names of TensorFlow.

    Errors of ``tf.errors`` become names of `tensoropt.errors`, for scripts that catch them. Control
    flow v2 stays on, even if a script turns it off here or in ``tf.compat.v1``. TensorFlow 1's
    layers and cells are those of tf_keras; if it is not installed, an error names it.
    """
    vars(errors)["__getattr__"] = _tensorflow_error
    for module in copies_of_v1():
        module.disable_v2_behavior = disable_v2_behavior
        module.disable_control_flow_v2 = disable_control_flow_v2
    if importlib.util.find_spec(_KERAS) is not None:
        os.environ.setdefault(_LEGACY_KERAS, "1")  # TensorFlow reads it at their first use
    else:
        for module in copies_of_v1():
            module.layers = MissingModule("layers")
            module.nn.rnn_cell = MissingModule("nn.rnn_cell")


class MissingModule(ModuleType):
    """A module of TensorFlow 1 that is now in another package, which is not installed."""

    def __getattr__(self, name: str) -> NoReturn:
        remedy = ""
        if not name.startswith("__"):
            version = ".".join(tf.__version__.split(".")[:2])
            remedy = (
                f": tf.{self.__name__} is in the package {_KERAS}. Got none; "
                f"pip install '{_KERAS}=={version}.*', the version of TensorFlow"
            )
        raise AttributeError(f"module 'tf.{self.__name__}' has no attribute {name!r}{remedy}")


def _tensorflow_error(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'tensoropt.errors' has no attribute {name!r}")
    return getattr(tf.compat.v1.errors, name)


def rank(input: Any = _NONE, name: str | None = None) -> Any:
    """Number of this process among all, from 0; for a tensor, its rank, as of ``tf.rank``."""
    return job.rank() if input is _NONE else tf.rank(input, name)


def size(input: Any = _NONE, name: str | None = None, out_type: tf.DType = tf.int32) -> Any:
    """Number of devices of the job; for a tensor, its size, as of ``tf.size``."""
    return job.size() if input is _NONE else tf.compat.v1.size(input, name, out_type)


def disable_v2_behavior() -> None:
    """TensorFlow's function, with control flow v2 left on: only functional loops can be read."""
    _disable_v2_behavior()
    tf.compat.v1.enable_control_flow_v2()


def disable_control_flow_v2() -> None:
    """Do nothing: only functional loops and conditionals can be imported."""


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
