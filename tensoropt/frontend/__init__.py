"""The names that a script uses: TensorOpt's own, then those of ``tf.compat.v1``."""

from __future__ import annotations

import difflib
import sys
from typing import Any

import tensorflow as tf

from tensoropt.frontend.definitions.operator_descriptions import describe
from tensoropt.frontend.inputs.batches.step_input import in_shares
from tensoropt.frontend.job import copies as _copies
from tensoropt.frontend.job.job import (
    at_start,
    init,
    is_initialized,
    local_rank,
    local_size,
    shutdown,
)
from tensoropt.frontend.keras_models import deferred_values as _deferred
from tensoropt.frontend.keras_models.parallelize import parallelize
from tensoropt.frontend.measuring.run_summary import compare, summary
from tensoropt.frontend.planning.build_execution_graph import build_execution_graph
from tensoropt.frontend.planning.find_strategy import find_strategy
from tensoropt.frontend.planning.preflight import preflight
from tensoropt.frontend.saving import tensorflow_files as _saving
from tensoropt.frontend.session import checkpoint_reads as _reads
from tensoropt.frontend.session import meta_graphs as _meta_graphs
from tensoropt.frontend.session import monitored_sessions as _monitored
from tensoropt.frontend.session import preemption as _preemption
from tensoropt.frontend.session import savers as _savers
from tensoropt.frontend.session import supervisor_loops as _services
from tensoropt.frontend.session.preemption import PreemptionHook
from tensoropt.frontend.session.session import InteractiveSession, Session, run
from tensoropt.frontend.steps import recurrent_loops as _loops
from tensoropt.frontend.tensorflow_api import graph_mode as _graph_mode
from tensoropt.frontend.tensorflow_api import shared_names as _names
from tensoropt.frontend.tensorflow_api.deferred_names import looked_up
from tensoropt.frontend.tensorflow_api.graph_mode import enable_graph_mode
from tensoropt.frontend.tensorflow_api.recorded_gradients import gradients
from tensoropt.frontend.tensorflow_api.shared_names import (
    GradientDescentOptimizer,
    rank,
    size,
    softmax_cross_entropy,
)
from tensoropt.launched import end_job_on_error

__all__ = [
    "GradientDescentOptimizer",
    "InteractiveSession",
    "PreemptionHook",
    "Session",
    "build_execution_graph",
    "compare",
    "describe",
    "enable_graph_mode",
    "find_strategy",
    "gradients",
    "in_shares",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "of_graph_api",
    "parallelize",
    "preflight",
    "rank",
    "run",
    "shutdown",
    "size",
    "softmax_cross_entropy",
    "summary",
]

end_job_on_error()
_copies.install_before_init()
at_start(_saving.install, _saving.remove, is_for_one=True)
at_start(_reads.install, lambda: None)
at_start(_deferred.install, _deferred.remove)

_OWN_CLASSES = GradientDescentOptimizer, InteractiveSession, PreemptionHook, Session
_ELSEWHERE = {
    "contrib": "; TensorFlow 2 is without it: tf.layers (of the package tf_keras), tf.initializers "
    "and the package tf_slim have much of what it had"
}


for _each in (_loops, _meta_graphs, _monitored, _preemption, _reads, _savers, _services, _names):
    _graph_mode.when_enabled(_each.install)


def of_graph_api(name: str) -> Any:
    """Return a name of TensorOpt's graph API, or else of ``tf.compat.v1``; see `deferred_names`.

    Raises:
        AttributeError: if TensorFlow has no such name.
    """
    if name in __all__:
        return looked_up(sys.modules[__name__], name, _OWN_CLASSES)
    try:
        return looked_up(tf.compat.v1, name)
    except AttributeError:
        near = difflib.get_close_matches(name, [*__all__, *dir(tf.compat.v1)], 1)
        hint = _ELSEWHERE.get(name) or (f". Did you mean {near[0]!r}?" if near else "")
        raise AttributeError(
            f"module 'tensoropt' has no attribute {name!r}, and neither has tf.compat.v1{hint}"
        ) from None
