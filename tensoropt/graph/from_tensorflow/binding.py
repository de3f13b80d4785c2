"""Binding: the script's graph with what is fed at known shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tensoropt.errors import GraphError

__all__ = ["FED_OUTPUT", "bind_shapes", "fed_operator"]

FED_OUTPUT = re.compile(r"(?P<operator>.+)/fed_(?P<index>\d+)")
"""The name of a fed output of an operator that has several, as `fed_operator` gives it."""


def fed_operator(tensor: tf.Tensor) -> str:
    """The name under which a fed tensor is known: its operator's, where that has one output."""
    if len(tensor.op.outputs) == 1:
        return str(tensor.op.name)
    return f"{tensor.op.name}/fed_{tensor.value_index}"


def bind_shapes(graph: tf.Graph, shapes: Mapping[str, Sequence[int]]) -> tf.Graph:
    """A copy of a graph in which what is fed has these shapes.

    A fed tensor that is no placeholder becomes one, which cuts off what it was computed from.
    TensorFlow's shape inference carries the shapes through the rest of the graph.

    Args:
        graph: the script's graph.
        shapes: by `fed_operator`.

    Raises:
        GraphError: if an operator cannot have inputs of such shapes.
    """
    definition = graph.as_graph_def()
    for node in definition.node:
        if node.name in shapes:
            _make_placeholder(node, graph.get_operation_by_name(node.name).outputs[0], shapes)
        elif node.op == "PlaceholderWithDefault":
            default = graph.get_operation_by_name(node.name).inputs[0].shape
            node.attr["shape"].shape.CopyFrom(default.as_proto())
    for name in shapes:
        original = FED_OUTPUT.fullmatch(name)
        if original is not None:
            tensor = graph.get_tensor_by_name(f"{original['operator']}:{original['index']}")
            _make_placeholder(definition.node.add(name=name), tensor, shapes)
            for node in definition.node:
                for number, read in enumerate(node.input):
                    if read == tensor.name or (read == tensor.op.name and not tensor.value_index):
                        node.input[number] = name
    bound = tf.Graph()
    with bound.as_default():
        try:
            tf.compat.v1.import_graph_def(definition, name="")
        except ValueError as error:
            fed = ", ".join(f"{name!r}: {list(shape)}" for name, shape in shapes.items())
            raise GraphError(
                f"what is fed fits together in the script's graph. Got {fed}: {error} Feed the "
                "same number of examples everywhere, or correct batch_size or shapes."
            ) from None
    _say_shapes(graph, bound)
    return bound


def _make_placeholder(
    node: tf.compat.v1.NodeDef, tensor: tf.Tensor, shapes: Mapping[str, Sequence[int]]
) -> None:
    shape = tf.TensorShape(list(shapes[node.name]))
    if node.op != "Placeholder":
        del node.input[:]
        node.attr.clear()
        node.op = "Placeholder"
        node.attr["dtype"].type = tensor.dtype.base_dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(shape.as_proto())


def _say_shapes(graph: tf.Graph, bound: tf.Graph) -> None:
    """Carry over what only the script says of shapes (``set_shape``): no GraphDef has it."""
    for operation in bound.get_operations():
        for number, tensor in enumerate(operation.outputs):
            if tensor.shape.is_fully_defined() or operation.type == "Placeholder":
                continue
            said = graph.get_operation_by_name(operation.name).outputs[number].shape
            if said.rank is not None and tensor.shape.is_compatible_with(said):
                tensor.set_shape(said)
