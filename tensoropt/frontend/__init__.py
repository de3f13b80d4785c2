"""What a script uses: TensorOpt's own names, and through them those of ``tf.compat.v1``."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tensoropt.frontend.job import copies as _copies
from tensoropt.frontend.job import failure as _failure
from tensoropt.frontend.job.job import (
    at_start,
    init,
    is_initialized,
    local_rank,
    local_size,
    shutdown,
)
from tensoropt.frontend.job.run_summary import summary
from tensoropt.frontend.keras_models.parallelize import parallelize
from tensoropt.frontend.planning.build_execution_graph import build_execution_graph
from tensoropt.frontend.planning.find_strategy import find_strategy
from tensoropt.frontend.planning.preflight import preflight
from tensoropt.frontend.session import monitored_sessions as _monitored
from tensoropt.frontend.session import preemption as _preemption
from tensoropt.frontend.session import savers as _savers
from tensoropt.frontend.session import supervisor_loops as _services
from tensoropt.frontend.session.preemption import PreemptionHook
from tensoropt.frontend.session.session import InteractiveSession, Session, run
from tensoropt.frontend.steps import saving as _saving
from tensoropt.frontend.tensorflow_api import shared_names as _names
from tensoropt.frontend.tensorflow_api.graph_mode import enable_graph_mode
from tensoropt.frontend.tensorflow_api.paper_names import (
    GradientDescentOptimizer,
    softmax_cross_entropy,
)
from tensoropt.frontend.tensorflow_api.recorded_gradients import gradients
from tensoropt.frontend.tensorflow_api.shared_names import rank, size

__all__ = [
    "GradientDescentOptimizer",
    "InteractiveSession",
    "PreemptionHook",
    "Session",
    "build_execution_graph",
    "enable_graph_mode",
    "find_strategy",
    "from_tensorflow",
    "gradients",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "open_graph_api",
    "parallelize",
    "preflight",
    "rank",
    "run",
    "shutdown",
    "size",
    "softmax_cross_entropy",
    "summary",
]

_failure.install_before_init()
_copies.install_before_init()
at_start(_saving.install, _saving.remove)

_ELSEWHERE = {
    "contrib": "; TensorFlow 2 is without it: tf.layers (of the package tf_keras), tf.initializers "
    "and the package tf_slim have much of what it had"
}


def open_graph_api() -> None:
    """Turn to graph mode, and let TensorFlow's sessions, hooks and savers know of TensorOpt's.

    Raises:
        StateError: if TensorFlow operators ran eagerly.
    """
    global _is_open
    enable_graph_mode()  # again, where it was turned on within a graph's context, which has ended
    if not _is_open:
        for each in (_monitored, _preemption, _savers, _services, _names):
            each.install()
        _is_open = True


_is_open = False


def from_tensorflow(name: str) -> Any:
    """A name of ``tf.compat.v1``.

    Raises:
        AttributeError: if TensorFlow has no such name.
    """
    try:
        return getattr(tf.compat.v1, name)
    except AttributeError:
        raise AttributeError(
            f"module 'tensoropt' has no attribute {name!r}, and neither has tf.compat.v1"
            + _ELSEWHERE.get(name, "")
        ) from None
