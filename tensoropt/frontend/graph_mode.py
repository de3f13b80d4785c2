"""TensorFlow 1's graph mode, which scripts build their graph in."""

from __future__ import annotations

import tensorflow as tf

from tensoropt.errors import StateError

__all__ = ["enter_graph_mode"]


def enter_graph_mode() -> None:
    """Turn eager execution off and new-style control flow on.

    Raises:
        StateError: if the script has already run TensorFlow operators eagerly.
    """
    try:
        tf.compat.v1.disable_eager_execution()
    except ValueError as error:
        raise StateError(
            "TensorOpt reads a script's graph, so it is imported before TensorFlow runs anything. "
            f"Got TensorFlow in eager mode, already used: {error} Import tensoropt first, or call "
            "tf.compat.v1.disable_eager_execution() at the top of the script."
        ) from error
    tf.compat.v1.enable_control_flow_v2()
