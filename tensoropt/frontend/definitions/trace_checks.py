"""Checks of a traced function: operators that call Python, and gradients through loops."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.graph.from_tensorflow import GRADIENT_ATTRIBUTE

__all__ = ["check_loops", "check_python"]


def check_python(definition: Any) -> None:
    """Refuse operators that call Python, because their Python functions end with the trace.

    Raises:
        GraphError: if the step has such an operator.
    """
    nodes = [*definition.node]
    nodes += [node for function in definition.library.function for node in function.node_def]
    for node in nodes:
        if node.op in ("EagerPyFunc", "PyFunc", "PyFuncStateless"):
            raise GraphError(
                "a step consists of operators of TensorFlow. Got one that calls Python, "
                f"{node.name!r} of type {node.op}, as of tf.py_function and tf.numpy_function; "
                "use TensorFlow's operators instead, or process the data before the step."
            )


def check_loops(graph: tf.Graph, by: Mapping[str, Sequence[int]]) -> None:
    """Refuse gradients through loops that are not functions.

    The gradient of such a loop adds inputs to the loop, which must come before the control inputs
    of the loop; the program of every rank adds both.

    Args:
        graph: the step's graph.
        by: for each operator with a custom gradient, the inputs that it differentiates by.

    Raises:
        GraphError: if a gradient passes through a loop.
    """
    records = [
        json.loads(operation.get_attr(GRADIENT_ATTRIBUTE))
        for operation in graph.get_operations()
        if operation.type == "Identity" and GRADIENT_ATTRIBUTE in operation.node_def.attr
    ]
    losses = {name.partition(":")[0] for record in records for name in record["ys"]}
    waiting, seen = [graph.get_operation_by_name(name) for name in sorted(losses)], set(losses)
    while waiting:
        operation = waiting.pop()
        inputs = operation.inputs
        if operation.name in by:
            inputs = [inputs[number] for number in by[operation.name]]
        before = [tensor.op for tensor in inputs if tensor.op.name not in seen]
        seen.update(operation.name for operation in before)
        waiting += before
        if operation.type in ("While", "StatelessWhile"):
            raise GraphError(
                "a step differentiates loops that pass tensors of known shapes from one turn to "
                f"the next. Got {operation.name!r}, a loop over another structure or inside a "
                "function of TensorFlow, as tf.nn.ctc_loss has one; unroll the loop (a Python "
                "loop over a range), or collect its results in a tf.TensorArray of a known size "
                "and element_shape."
            )
