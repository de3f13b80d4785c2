"""Parallel maps that draw random numbers: the order of their calls differs between processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.frontend.inputs.shares.functions import effects_of
from tensoropt.graph.from_tensorflow import called_functions, function_closure

__all__ = ["draw_in_order"]


def draw_in_order(script: tf.Graph, nodes: Any, in_function: bool) -> None:
    """Let parallel maps that draw make one call at a time, so that all processes draw alike.

    Args:
        script: has the functions of the maps.
        nodes: the node definitions of a graph or of a function, changed in place.
        in_function: whether it is a function, whose nodes name their inputs in another way.
    """
    for node in list(nodes):
        if node.op != "ParallelMapDatasetV2":
            continue
        functions = function_closure(script, called_functions(node.attr))
        if not effects_of([function.node_def for function in functions.values()]).draws:
            continue
        one = nodes.add(name=f"{node.name}/one_call", op="Const")
        one.attr["dtype"].type = tf.int64.as_datatype_enum
        one.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.int64(1)))
        last = sum(not name.startswith("^") for name in node.input) - 1
        node.input[last] = f"{one.name}:output:0" if in_function else one.name
        node.attr["deterministic"].s = b"true"
