"""What a script touches: TensorOpt's own names, and the way through to ``tf.compat.v1``."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tensoropt.frontend import monitored as _monitored
from tensoropt.frontend import names as _names
from tensoropt.frontend import recording as _recording
from tensoropt.frontend import services as _services
from tensoropt.frontend.failure import install_before_init
from tensoropt.frontend.graph_mode import enter_graph_mode
from tensoropt.frontend.job import (
    init,
    is_initialized,
    local_rank,
    local_size,
    shutdown,
)
from tensoropt.frontend.model import GradientDescentOptimizer, softmax_cross_entropy
from tensoropt.frontend.names import rank, size
from tensoropt.frontend.preflight_check import preflight
from tensoropt.frontend.recording import gradients
from tensoropt.frontend.run_summary import summary
from tensoropt.frontend.session import InteractiveSession, Session, run
from tensoropt.frontend.strategy import build_execution_graph, find_strategy

__all__ = [
    "GradientDescentOptimizer",
    "InteractiveSession",
    "Session",
    "build_execution_graph",
    "find_strategy",
    "from_tensorflow",
    "gradients",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "preflight",
    "rank",
    "run",
    "shutdown",
    "size",
    "softmax_cross_entropy",
    "summary",
]

install_before_init()
enter_graph_mode()
_recording.install()
_monitored.install()
_services.install()
_names.install()

_ELSEWHERE = {
    "contrib": "; TensorFlow 2 is without it: tf.layers, tf.initializers and the package tf_slim "
    "have much of what it had"
}


def from_tensorflow(name: str) -> Any:
    """A name of ``tf.compat.v1``.

    Raises:
        AttributeError: if TensorFlow has none such.
    """
    try:
        return getattr(tf.compat.v1, name)
    except AttributeError:
        raise AttributeError(
            f"module 'tensoropt' has no attribute {name!r}, and neither has tf.compat.v1"
            + _ELSEWHERE.get(name, "")
        ) from None
