"""The private modules of TensorFlow that TensorOpt uses; no other file of the package imports one.

Each is listed because TensorFlow has no public name for what it does. Private modules change
without notice, so TensorFlow's version has an upper limit: the first untested version, here and in
``pyproject.toml``.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto
from tensorflow.python.autograph.operators import control_flow
from tensorflow.python.checkpoint import checkpoint_management, functional_saver
from tensorflow.python.client import session
from tensorflow.python.client.session import SessionInterface
from tensorflow.python.data.util import nest as structures
from tensorflow.python.data.util import structure
from tensorflow.python.eager import backprop, context, record
from tensorflow.python.framework import (
    func_graph,
    function_def_to_graph,
    op_def_library,
    op_def_registry,
    ops,
    smart_cond,
    stack,
)
from tensorflow.python.ops import (
    control_flow_util_v2,
    control_flow_v2_func_graphs,
    gradients,
    gradients_impl,
    resource_variable_ops,
    rnn,
    script_ops,
    tensor_array_ops,
    while_v2,
)
from tensorflow.python.summary import summary
from tensorflow.python.summary.writer import writer_cache
from tensorflow.python.trackable import base as trackable
from tensorflow.python.training import basic_session_run_hooks, coordinator, session_manager
from tensorflow.python.util import nest

__all__ = [
    "REASONS",
    "UNTESTED_VERSION",
    "BundleEntryProto",
    "SessionInterface",
    "backprop",
    "basic_session_run_hooks",
    "checkpoint_management",
    "context",
    "control_flow",
    "control_flow_util_v2",
    "control_flow_v2_func_graphs",
    "coordinator",
    "copies_of_v1",
    "func_graph",
    "function_def_to_graph",
    "functional_saver",
    "gradients",
    "gradients_impl",
    "nest",
    "op_def_library",
    "op_def_registry",
    "ops",
    "record",
    "resource_variable_ops",
    "rnn",
    "script_ops",
    "session",
    "session_manager",
    "smart_cond",
    "stack",
    "structure",
    "structures",
    "summary",
    "tensor_array_ops",
    "trackable",
    "unrecorded_gradients",
    "warn_of_untested",
    "while_v2",
    "writer_cache",
]

unrecorded_gradients = gradients_impl.gradients
"""TensorFlow's own ``tf.gradients``, read before TensorOpt replaces it."""

UNTESTED_VERSION = "2.22"
"""The first version of TensorFlow that TensorOpt has not been tested with."""

REASONS = {
    "BundleEntryProto": "an entry of a checkpoint's index, in which checksums are replaced",
    "SessionInterface": "the base class that savers and hooks require of a session",
    "backprop": "where a tape computes the gradient of an operator",
    "basic_session_run_hooks": "the timer of hooks, which must give the same answer on every rank",
    "checkpoint_management": "where supervised sessions look for a checkpoint to restore",
    "context": "says whether eager code has run",
    "control_flow": "where AutoGraph chooses how to run a loop over data, whose body is a step",
    "control_flow_v2_func_graphs": "tells the branch of a conditional from the body of a loop",
    "control_flow_util_v2": "makes a function of a traced loop of a script",
    "coordinator": "the threads of supervisors, whose runs must be at the same steps on every rank",
    "copies_of_v1": "the modules that a script may have as tf.compat.v1",
    "func_graph": "traces a step's function into a graph of its own",
    "function_def_to_graph": "a function's operators, to put a loop into a rank's graph",
    "functional_saver": "the operators that write a checkpoint, which a thread runs later",
    "gradients": "where optimizers look tf.gradients up, which is recorded",
    "gradients_impl": "tf.gradients itself, whose calls are recorded",
    "nest": "the structure of a feed_dict whose keys are structures",
    "op_def_library": "makes an operator of any type, to test a script's description of it",
    "op_def_registry": "which attributes and arguments an operator has",
    "ops": "the registry of gradient functions; the counter in the names of functions; whether the "
    "default graph was reset",
    "record": "tells a tape that a loop of a step is one operator",
    "resource_variable_ops": "where a step's loops read variables, which happens before them",
    "rnn": "where dynamic_rnn finds its loop, which is split by examples",
    "script_ops": "the counter in the names of host calls, which all ranks must share",
    "session": "structures of fetches; how sparse tensors are fed",
    "session_manager": "makes sessions for supervisors, which are TensorOpt's",
    "smart_cond": "the constant value of a shape computation, however long",
    "stack": "makes a session the default one",
    "structure": "how elements of data sets become arguments of their functions",
    "structures": "the structures of elements of data sets, in which lists are tensors",
    "summary": "where supervisors get their summary writers",
    "tensor_array_ops": "where arrays that a step's loops fill are read",
    "trackable": "the first value of a variable that a checkpoint restores",
    "unrecorded_gradients": "TensorFlow's own tf.gradients, without TensorOpt's record of calls",
    "while_v2": "where loops of a step are made, each a function",
    "writer_cache": "where hooks get their summary writers",
}
"""The reason why TensorOpt needs each name."""


def copies_of_v1() -> list[Any]:
    """All module objects that a script may have as ``tf.compat.v1``.

    The attribute ``compat.v1`` of TensorFlow is one module until ``tensorflow.compat.v1`` has been
    imported, and another one afterwards.
    """
    names = ("tensorflow.compat.v1", "tensorflow._api.v2.compat.v1")
    loaded = [sys.modules[name] for name in names if name in sys.modules]
    return list({id(module): module for module in (tf.compat.v1, *loaded)}.values())


def warn_of_untested(version: str) -> None:
    """Warn if a version of TensorFlow is `UNTESTED_VERSION` or higher."""
    if _numbers(version) >= _numbers(UNTESTED_VERSION):
        warnings.warn(
            f"TensorOpt uses private modules of TensorFlow and is tested with versions below "
            f"{UNTESTED_VERSION}. Got {version}: install an older one if something fails.",
            stacklevel=2,
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])


warn_of_untested(tf.__version__)
