"""TensorFlow 1's graph mode, which scripts build their graph in."""

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
    """Call a function once, when graph mode is turned on."""
    _installs.append(install)


def is_enabled() -> bool:
    """Whether graph mode is on by `enable_graph_mode`."""
    return _enabled and not tf.executing_eagerly()


def enable_graph_mode() -> None:
    """Turn TensorFlow 2's behaviour off, as TensorFlow 1's scripts expect, and record gradients.

    Eager execution is off. Shapes are lists of `Dimension`, layers draw their initial values as
    TensorFlow 1's do. Two things stay: variables are resources, which are read when they are read,
    and loops and conditionals are functional (control flow v2), to be read at all. From now on
    ``tf.compat.v1.gradients`` and optimizers record what they differentiate by what.

    The first use of a TensorOpt name of the graph API does all this: a call of a function, a
    session or an optimizer that is made. A script calls it where it builds its graph with
    TensorFlow's own names before that. Further calls do nothing.

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
    logger.setLevel(logging.ERROR)  # that reference variables are deprecated: there will be none
    tf.compat.v1.disable_v2_behavior()
    logger.setLevel(level)
    tf.compat.v1.enable_resource_variables()
    tf.compat.v1.enable_control_flow_v2()
    # Else tf_keras imports it later: `tf.compat.v1` is then another module, without our names.
    importlib.import_module("tensorflow.compat.v1")
    if not _enabled:  # else it was turned on within a graph's context, which has ended
        for install in (recorded_gradients.install, *_installs):
            install()
    _enabled = True
