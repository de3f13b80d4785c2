"""TensorFlow 1's graph mode, in which scripts build their graphs."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable

import tensorflow as tf

from tensoropt.errors import StateError
from tensoropt.frontend.tensorflow_api import recorded_gradients
from tensoropt.tensorflow_private import context as eager_context

__all__ = ["enable_graph_mode", "is_enabled", "when_enabled"]

_enabled = False
_installs: list[Callable[[], None]] = []


def when_enabled(install: Callable[[], None]) -> None:
    """Call a function once, as soon as graph mode is turned on."""
    _installs.append(install)


def is_enabled() -> bool:
    """Whether `enable_graph_mode` has turned graph mode on."""
    return _enabled and not tf.executing_eagerly()


def enable_graph_mode() -> None:
    """Turn TensorFlow 2's behaviour off, as TensorFlow 1's scripts expect, and record gradients.

    Eager execution is off. Shapes are lists of `Dimension`, and layers draw their initial values as
    in TensorFlow 1. Two things stay as in TensorFlow 2: variables are resources, whose value is
    that of the moment of reading, and loops and conditionals are functional (control flow v2),
    because TensorOpt cannot read others. From now on ``tf.compat.v1.gradients`` and optimizers
    record which tensors they differentiate, and by which.

    The first use of a TensorOpt name of the graph API calls this: a call of a function, or a new
    session or optimizer. A script must call it if it builds its graph with TensorFlow's own names
    before that. Further calls do nothing.

    Raises:
        StateError: if the script has already run TensorFlow operators eagerly.
    """
    global _enabled
    if is_enabled():
        return
    context = eager_context.context_safe()
    if tf.executing_eagerly() and context is not None and context._initialized:
        raise StateError(
            "TensorOpt reads a script's graph, so graph mode is on before TensorFlow runs "
            "anything. Got operators that ran eagerly. Call tensoropt.enable_graph_mode() at the "
            "top of the script."
        )
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # hide the warning that reference variables are deprecated
    tf.compat.v1.disable_v2_behavior()
    logger.setLevel(level)
    tf.compat.v1.enable_resource_variables()
    tf.compat.v1.enable_control_flow_v2()
    # If tf_keras imported it later, `tf.compat.v1` would be another module, without our names.
    importlib.import_module("tensorflow.compat.v1")
    if not _enabled:  # else it was on before, in the context of a graph that has ended
        for install in (recorded_gradients.install, *_installs):
            install()
    _enabled = True
