"""Nodes of a GraphDef by the names of their outputs, and parts of a traced step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.tensorflow_private import func_graph

__all__ = ["before", "needed_by", "node_of", "part_of"]


def node_of(name: str) -> str:
    """The name of the node of an input, which may be a tensor or a control input."""
    return name.lstrip("^").partition(":")[0]


def needed_by(nodes: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    """The names of some nodes, and of all nodes that they need.

    Args:
        nodes: all nodes of a definition, by name.
        names: names of nodes, or inputs of nodes.
    """
    waiting = {node_of(name) for name in names}
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting |= {node_of(source) for source in nodes[name].input} - needed
    return needed


def before(roots: Iterable[tf.Operation]) -> set[tf.Operation]:
    """Some operators, and all operators that their values depend on."""
    needed: set[tf.Operation] = set()
    waiting = list(roots)
    while waiting:
        operation = waiting.pop()
        if operation not in needed:
            needed.add(operation)
            waiting += [tensor.op for tensor in operation.inputs]
    return needed


def part_of(
    traced: func_graph.FuncGraph,
    operations: Iterable[tf.Operation],
    read: Sequence[tf.Tensor],
    outputs: Sequence[tf.Tensor],
) -> Any:
    """Some operators of a step as an eager function.

    Args:
        traced: the step.
        operations: the operators, with all operators that their values depend on.
        read: placeholders among them, the arguments of the function.
        outputs: tensors that they compute, the results of the function.
    """
    names = {operation.name for operation in operations}
    definition = traced.as_graph_def()
    kept = [node for node in definition.node if node.name in names]
    for node in kept:
        inputs = [source for source in node.input if source[0] != "^" or source[1:] in names]
        del node.input[:]
        node.input.extend(inputs)
        node.attr.pop("_class", None)  # it may name an operator that is not in this part
    del definition.node[:]
    definition.node.extend(kept)
    whole = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(definition, name=""), []
    )
    return whole.prune(
        [whole.graph.get_tensor_by_name(tensor.name) for tensor in read],
        [whole.graph.get_tensor_by_name(output.name) for output in outputs],
    )
