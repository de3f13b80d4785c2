"""Names that TensorOpt and TensorFlow share, and which of the two a call gets."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType
from typing import Any, NoReturn

import tensorflow as tf

from tensoropt import errors
from tensoropt.frontend.job import job

__all__ = [
    "MissingModule",
    "disable_control_flow_v2",
    "disable_v2_behavior",
    "install",
    "rank",
    "size",
]

_NONE = object()
_KERAS, _LEGACY_KERAS = "tf_keras", "TF_USE_LEGACY_KERAS"
_disable_v2_behavior = tf.compat.v1.disable_v2_behavior


def install() -> None:
    """Add the errors of ``tf.errors`` to `tensoropt.errors`, for scripts that catch them; keep
    control flow v2 on, whether a script turns it off here or in ``tf.compat.v1``; and let
    TensorFlow 1's layers and cells be those of tf_keras, or say that they are there.
    """
    vars(errors)["__getattr__"] = _tensorflow_error
    tf.compat.v1.disable_v2_behavior = disable_v2_behavior
    tf.compat.v1.disable_control_flow_v2 = disable_control_flow_v2
    if importlib.util.find_spec(_KERAS) is not None:
        os.environ.setdefault(_LEGACY_KERAS, "1")  # TensorFlow reads it when they are first used
    else:
        tf.compat.v1.layers = MissingModule("layers")
        tf.compat.v1.nn.rnn_cell = MissingModule("nn.rnn_cell")


class MissingModule(ModuleType):
    """A module of TensorFlow 1 that has gone to a package which is not installed."""

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
    """Number of this process among all, from 0; of a tensor, its rank as ``tf.rank`` gives it."""
    return job.rank() if input is _NONE else tf.rank(input, name)


def size(input: Any = _NONE, name: str | None = None, out_type: tf.DType = tf.int32) -> Any:
    """Number of devices of the job; of a tensor, its size as ``tf.size`` gives it."""
    return job.size() if input is _NONE else tf.compat.v1.size(input, name, out_type)


def disable_v2_behavior() -> None:
    """TensorFlow's, but control flow v2 stays on: only functional loops can be imported."""
    _disable_v2_behavior()
    tf.compat.v1.enable_control_flow_v2()


def disable_control_flow_v2() -> None:
    """Does nothing: only functional loops and conditionals can be imported."""
