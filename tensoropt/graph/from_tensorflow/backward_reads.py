"""Which tensors a script's gradients read: found in the script's own graph.

``tf.gradients`` has built the backward pass there already, and TensorFlow records which operator
an operation computes the gradient of, so what the gradient functions read need not be known
beforehand. A graph that was imported has no such record; its names say the same, as each operator's
gradient is in a name scope of its own. Of a tape's gradients an attribute says it.
"""

from __future__ import annotations

import re

import tensorflow as tf

from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.from_tensorflow.attributes import GRADIENT_OF
from tensoropt.graph.operator import Graph, Operator
from tensoropt.tdl import types_with

__all__ = ["backward_reads"]

_ONLY_SHAPES = types_with(role="reads shapes")
_SCOPE = re.compile(r"(?:^|/)gradients(?:_\d+)?/(?P<operator>.+?)_grad/[^/]*(?:/.*)?$")


def backward_reads(script: tf.Graph, graph: Graph) -> BackwardReads:
    """What the gradient of every operator of a graph reads of its inputs and outputs.

    Args:
        script: the script's graph, with the gradients that it asked for.
        graph: the part of it without gradients, as imported.
    """
    inputs: dict[str, tuple[int, ...]] = {}
    outputs: dict[str, tuple[int, ...]] = {}
    known = {operation.name for operation in script.get_operations()}
    computed = _gradient_operations(script, graph)
    owners: dict[str, set[str | None]] = {}

    def reads(operator: Operator, tensor: tf.Tensor) -> bool:
        """Whether the operator's own gradient reads the tensor."""
        if tensor.name not in owners:
            consumers = [each for each in tensor.consumers() if each.name in computed]
            owners[tensor.name] = {_owner(consumer, graph) for consumer in consumers}
        return operator.name in owners[tensor.name]

    for operator in graph:
        if operator.name not in known or operator.gradient is not None:
            continue
        original = script.get_operation_by_name(operator.name)
        made = [t.value_index for t in original.outputs if reads(operator, t)]
        # A read may be another one in the graph, and a gather's table is one.
        given = [
            number
            for number, (tensor, name) in enumerate(
                zip(original.inputs, operator.inputs, strict=False)
            )
            if tensor.name == str(name) or tensor.op.type == "ReadVariableOp"
            if reads(operator, tensor)
        ]
        inputs |= {operator.name: tuple(given)} if given else {}
        outputs |= {operator.name: tuple(made)} if made else {}
    return BackwardReads(inputs, outputs)


def _gradient_operations(script: tf.Graph, graph: Graph) -> set[str]:
    """The operations that compute the gradients which the graph needs, and no others."""
    waiting = [script.get_operation_by_name(op.name) for op in graph if op.gradient is not None]
    found: set[str] = set()
    while waiting:
        for tensor in waiting.pop().inputs:
            if tensor.op.name not in found and tensor.op.name not in graph:
                found.add(tensor.op.name)
                waiting.append(tensor.op)
    return found


def _owner(consumer: tf.Operation, graph: Graph) -> str | None:
    """The operator whose gradient an operation belongs to; None if it reads no value for one."""
    if consumer.name in graph or consumer.type in _ONLY_SHAPES:
        return None
    of = consumer._original_op
    while of is not None:  # a gradient's gradient is of an operation of the first one
        if of.name in graph:
            return str(of.name)
        of = of._original_op
    of = consumer
    while (name := _gradient_of(of)) is not None:
        if name in graph:
            return name
        of = of.graph.get_operation_by_name(name)
    match = _SCOPE.search(consumer.name)
    if match is None:
        return None
    return match["operator"] if match["operator"] in graph else None


def _gradient_of(operation: tf.Operation) -> str | None:
    """The name of the operator that a tape has made it for."""
    try:
        return str(operation.get_attr(GRADIENT_OF).decode())
    except ValueError:
        return None
