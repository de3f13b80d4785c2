"""TensorOpt: auto-parallel training for TensorFlow.

``import tensoropt as tf`` gives TensorFlow 1's graph API: the names below are TensorOpt's own,
everything else is ``tf.compat.v1``'s. Importing this package imports neither TensorFlow nor MPI;
the first look at a name that needs TensorFlow does.

Looking at a name changes nothing else. Eager execution is turned off by the first use of the graph
API: a call of one of its functions, a session or optimizer that is made, or a class of
``tf.compat.v1`` that is looked up (`frontend.tensorflow_api.deferred_names`). `compare`,
`describe`, `in_shares`, `init`, `is_initialized`, `rank`, `size`, `local_rank`, `local_size`,
`parallelize`, `shutdown` and `summary`, types such as ``float32``, errors and constants leave it
on. An unknown name is an AttributeError.

Under a launcher that has started several ranks, training outside of TensorOpt is refused from the
import on, and an error of the script ends the job (`launched`). Messages of libraries that tell a
user nothing to act on are held back from there on, too (`quiet`), and TensorFlow has the rank's
share of the machine's cores: import TensorOpt before Keras.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tensoropt import errors, launched
from tensoropt.errors import TensorOptError
from tensoropt.garbage import importing

if TYPE_CHECKING:
    from tensoropt.frontend import (
        GradientDescentOptimizer,
        InteractiveSession,
        PreemptionHook,
        Session,
        build_execution_graph,
        compare,
        describe,
        enable_graph_mode,
        find_strategy,
        gradients,
        in_shares,
        init,
        is_initialized,
        local_rank,
        local_size,
        parallelize,
        preflight,
        rank,
        run,
        shutdown,
        size,
        softmax_cross_entropy,
        summary,
    )
    from tensoropt.plan import ParallelismProfile, Plan

__version__ = "0.1.0"

__all__ = [
    "GradientDescentOptimizer",
    "InteractiveSession",
    "ParallelismProfile",
    "Plan",
    "PreemptionHook",
    "Session",
    "TensorOptError",
    "build_execution_graph",
    "compare",
    "describe",
    "enable_graph_mode",
    "errors",
    "find_strategy",
    "gradients",
    "in_shares",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "parallelize",
    "preflight",
    "rank",
    "run",
    "shutdown",
    "size",
    "softmax_cross_entropy",
    "summary",
]

_PLANS = frozenset({"ParallelismProfile", "Plan"})
_EAGER_TOO = frozenset(
    {"compare", "describe", "init", "is_initialized", "local_rank", "local_size", "parallelize"}
)
_EAGER_TOO |= {"in_shares", "rank", "shutdown", "size", "summary"}
"""Own names that leave eager execution on; the first use of any other name turns it off."""


def __getattr__(name: str) -> Any:
    """Return TensorOpt's own name, or else the name of ``tf.compat.v1``."""
    if name.startswith("_"):  # a leaked __path__ would let `import tensoropt.anything` succeed
        raise AttributeError(f"module 'tensoropt' has no attribute {name!r}")
    if name in _PLANS:
        return getattr(importlib.import_module("tensoropt.plan"), name)
    with importing() if "tensorflow" not in sys.modules else nullcontext():
        frontend = importlib.import_module("tensoropt.frontend")
    return getattr(frontend, name) if name in _EAGER_TOO else frontend.of_graph_api(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


launched.refuse_copies()
launched.end_job_on_error()
launched.filter_standard_error()
launched.share_cores()
