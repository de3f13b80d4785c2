"""Find the tensors that a script's gradients read, in the script's own graph.

``tf.gradients`` has built the backward pass there already. TensorFlow records the operator whose
gradient an operation computes, so the tensors that gradient functions read are known without
knowing the functions. An imported graph has no such record, but each operator's gradient has a name
scope of its own. The gradients of a tape have an attribute instead.
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
    """Return the inputs and outputs of every operator that its gradient reads.

    Args:
        script: the script's graph, with its gradients.
        graph: the imported graph without the operations of gradients.
    """
    inputs: dict[str, tuple[int, ...]] = {}
    outputs: dict[str, tuple[int, ...]] = {}
    script_names = {operation.name for operation in script.get_operations()}
    computed = _gradient_operations(script, graph)
    owners: dict[str, set[str | None]] = {}

    def reads(operator: Operator, tensor: tf.Tensor) -> bool:
        """Whether the operator's own gradient reads a tensor."""
        if tensor.name not in owners:
            consumers = [each for each in tensor.consumers() if each.name in computed]
            owners[tensor.name] = {_owner(consumer, graph) for consumer in consumers}
        return operator.name in owners[tensor.name]

    for operator in graph:
        if operator.name not in script_names or operator.gradient is not None:
            continue
        original = script.get_operation_by_name(operator.name)
        read_outputs = [t.value_index for t in original.outputs if reads(operator, t)]
        # The importer replaces some reads of variables, such as that of a gather's table.
        read_inputs = [
            number
            for number, (tensor, name) in enumerate(
                zip(original.inputs, operator.inputs, strict=False)
            )
            if tensor.name == str(name) or tensor.op.type == "ReadVariableOp"
            if reads(operator, tensor)
        ]
        inputs |= {operator.name: tuple(read_inputs)} if read_inputs else {}
        outputs |= {operator.name: tuple(read_outputs)} if read_outputs else {}
    return BackwardReads(inputs, outputs)


def _gradient_operations(script: tf.Graph, graph: Graph) -> set[str]:
    """Return the names of the operations that compute the gradients of the graph."""
    waiting = [script.get_operation_by_name(op.name) for op in graph if op.gradient is not None]
    names: set[str] = set()
    while waiting:
        for tensor in waiting.pop().inputs:
            if tensor.op.name not in names and tensor.op.name not in graph:
                names.add(tensor.op.name)
                waiting.append(tensor.op)
    return names


def _owner(consumer: tf.Operation, graph: Graph) -> str | None:
    """Return the operator whose gradient an operation computes, None if it reads only shapes."""
    if consumer.name in graph or consumer.type in _ONLY_SHAPES:
        return None
    original = consumer._original_op
    while original is not None:  # the gradient of a gradient refers to the operation of the first
        if original.name in graph:
            return str(original.name)
        original = original._original_op
    operation = consumer
    while (name := _gradient_of(operation)) is not None:
        if name in graph:
            return name
        operation = operation.graph.get_operation_by_name(name)
    match = _SCOPE.search(consumer.name)
    if match is None:
        return None
    return match["operator"] if match["operator"] in graph else None


def _gradient_of(operation: tf.Operation) -> str | None:
    """Return the operator for whose gradient a tape has made an operation, None for others."""
    try:
        return str(operation.get_attr(GRADIENT_OF).decode())
    except ValueError:
        return None
