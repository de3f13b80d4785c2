"""Nodes of a GraphDef by the names that others read them by, and parts of a traced step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.tensorflow_private import func_graph

__all__ = ["before", "needed_by", "node_of", "part_of"]


def node_of(name: str) -> str:
    """The name of the node that an input is of: a tensor's, or one that is waited for."""
    return name.lstrip("^").partition(":")[0]


def needed_by(nodes: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    """The names of some nodes, and of all that they need.

    Args:
        nodes: all of a definition, by name.
        names: of nodes, or as inputs are named.
    """
    waiting = {node_of(name) for name in names}
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting |= {node_of(each) for each in nodes[name].input} - needed
    return needed


def before(roots: Iterable[tf.Operation]) -> set[tf.Operation]:
    """Some operators and all that their values depend on."""
    found: set[tf.Operation] = set()
    waiting = list(roots)
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [each.op for each in operation.inputs]
    return found


def part_of(
    traced: func_graph.FuncGraph,
    operations: Iterable[tf.Operation],
    read: Sequence[tf.Tensor],
    outputs: Sequence[tf.Tensor],
) -> Any:
    """Some operators of a step as an eager function.

    Args:
        traced: the step.
        operations: with all that their values depend on.
        read: placeholders among these, the function's arguments.
        outputs: tensors of these, which it returns.
    """
    names = {each.name for each in operations}
    definition = traced.as_graph_def()
    kept = [node for node in definition.node if node.name in names]
    for node in kept:
        inputs = [each for each in node.input if each[0] != "^" or each[1:] in names]
        del node.input[:]
        node.input.extend(inputs)
        node.attr.pop("_class", None)  # may name an operator of another part
    del definition.node[:]
    definition.node.extend(kept)
    whole = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(definition, name=""), []
    )
    return whole.prune(
        [whole.graph.get_tensor_by_name(each.name) for each in read],
        [whole.graph.get_tensor_by_name(each.name) for each in outputs],
    )
