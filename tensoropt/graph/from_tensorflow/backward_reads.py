"""Which tensors a script's gradients read: found in the script's own graph.

``tf.gradients`` has built the backward pass there already, each operator's gradient in a name scope
of its own, so what the gradient functions read need not be known beforehand.
"""

from __future__ import annotations

import re

import tensorflow as tf

from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import Graph

__all__ = ["backward_reads"]

_ONLY_SHAPES = frozenset({"Rank", "Shape", "ShapeN", "Size"})
_SCOPE = re.compile(r"(?:^|/)gradients(?:_\d+)?/(?P<operator>.+?)_grad/[^/]*(?:/.*)?$")


def backward_reads(script: tf.Graph, graph: Graph) -> BackwardReads:
    """What the gradient of every operator of a graph reads of its inputs and outputs.

    Args:
        script: the script's graph, with the gradients that it asked for.
        graph: the part of it without gradients, as imported.
    """
    inputs: dict[str, set[int]] = {}
    outputs: dict[str, set[int]] = {}
    known = {operation.name for operation in script.get_operations()}
    computed = _gradient_operations(script, graph)
    for operator in graph:
        if operator.name not in known or operator.gradient is not None:
            continue
        for tensor in script.get_operation_by_name(operator.name).outputs:
            for consumer in tensor.consumers():
                owner = _owner(consumer, graph) if consumer.name in computed else None
                if owner is None:
                    continue
                if owner == operator.name:
                    outputs.setdefault(owner, set()).add(tensor.value_index)
                for number, name in enumerate(graph[owner].inputs):
                    if (name.operator, name.index) == (operator.name, tensor.value_index):
                        inputs.setdefault(owner, set()).add(number)
    return BackwardReads(
        {name: tuple(sorted(numbers)) for name, numbers in inputs.items()},
        {name: tuple(sorted(numbers)) for name, numbers in outputs.items()},
    )


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
    match = _SCOPE.search(consumer.name)
    if match is None:
        return None
    return match["operator"] if match["operator"] in graph else None
