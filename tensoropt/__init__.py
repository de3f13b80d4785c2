"""TensorOpt: auto-parallel training for TensorFlow.

``import tensoropt as tf`` gives TensorFlow 1's graph API: the names below are TensorOpt's own,
everything else is ``tf.compat.v1``'s. Importing this package imports neither TensorFlow nor MPI;
the first use of a name that needs TensorFlow does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tensoropt import errors, launched
from tensoropt.errors import TensorOptError

if TYPE_CHECKING:
    from tensoropt.frontend import (
        GradientDescentOptimizer,
        InteractiveSession,
        PreemptionHook,
        Session,
        build_execution_graph,
        enable_graph_mode,
        find_strategy,
        gradients,
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
    "enable_graph_mode",
    "errors",
    "find_strategy",
    "gradients",
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
_EAGER_TOO = frozenset({"init", "is_initialized", "local_rank", "local_size", "parallelize"})
_EAGER_TOO |= {"rank", "shutdown", "size", "summary"}
"""Names that leave eager execution on; the others are of the graph API, and turn it off."""


def __getattr__(name: str) -> Any:
    """TensorOpt's own names on first use, then ``tf.compat.v1``'s."""
    if name.startswith("__"):  # a leaked __path__ would let `import tensoropt.anything` succeed
        raise AttributeError(f"module 'tensoropt' has no attribute {name!r}")
    module = importlib.import_module("tensoropt.plan" if name in _PLANS else "tensoropt.frontend")
    if name not in _PLANS | _EAGER_TOO:
        module.open_graph_api()
    if name in __all__:
        return getattr(module, name)
    return module.from_tensorflow(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


launched.refuse_copies()
