"""Operators of data sets that give the same elements again: in other processes, after a restart.

They replace operators of a graph's data sets, which give the same elements in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.frontend.inputs.shares.functions import effects_of
from tensoropt.graph.from_tensorflow import called_functions, function_closure

__all__ = ["draw_in_order", "keep_shuffles_below_batches"]


def draw_in_order(script: tf.Graph, nodes: Any, in_function: bool) -> None:
    """Let parallel maps that draw random numbers make one call at a time.

    The order of parallel calls differs between processes; now all processes draw alike.

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
        last = sum(not name.startswith("^") for name in node.input) - 1
        node.input[last] = _one_call(nodes, node.name, in_function)
        node.attr["deterministic"].s = b"true"


def keep_shuffles_below_batches(nodes: Any, in_function: bool) -> None:
    """Make batches by an operator whose saved state has that of its input, such as a shuffle's.

    Args:
        nodes: the node definitions of a graph or of a function, changed in place.
        in_function: whether it is a function, whose nodes name their inputs in another way.
    """
    for node in list(nodes):
        if node.op == "BatchDatasetV2":
            node.op = "ParallelBatchDataset"
            node.attr["deterministic"].s = b"true"
            node.input.insert(2, _one_call(nodes, node.name, in_function))


def _one_call(nodes: Any, name: str, in_function: bool) -> str:
    """Add the number of parallel calls of an operator, 1; return the input that reads it."""
    one = nodes.add(name=f"{name}/one_call", op="Const")
    one.attr["dtype"].type = tf.int64.as_datatype_enum
    one.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.int64(1)))
    return f"{one.name}:output:0" if in_function else str(one.name)
