"""TensorFlow 1's graph mode, which scripts build their graph in."""

from __future__ import annotations

import logging

import tensorflow as tf
from tensorflow.python.eager import context as eager_context  # says whether anything ran

from tensoropt.errors import StateError

__all__ = ["enter_graph_mode"]


def enter_graph_mode() -> None:
    """Turn TensorFlow 2's behaviour off, as scripts of TensorFlow 1 expect it.

    Shapes are lists of `Dimension`, layers draw their initial values as TensorFlow 1's do. Two
    things stay: variables are resources, which are read when they are read, and loops and
    conditionals are functional, to be read at all.

    Raises:
        StateError: if the script has already run TensorFlow operators eagerly.
    """
    context = eager_context.context_safe()
    if tf.executing_eagerly() and context is not None and context._initialized:
        raise StateError(
            "TensorOpt reads a script's graph, so it is imported before TensorFlow runs anything. "
            "Got operators that ran eagerly. Import tensoropt first, or call "
            "tf.compat.v1.disable_eager_execution() at the top of the script."
        )
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # that reference variables are deprecated: there will be none
    tf.compat.v1.disable_v2_behavior()
    logger.setLevel(level)
    tf.compat.v1.enable_resource_variables()
    tf.compat.v1.enable_control_flow_v2()
