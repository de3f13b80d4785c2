"""Shapes of the outputs of called functions and loops, inferred inside of their functions.

A loop's outputs have the shapes that it was traced with: where the number of rows was unknown, the
results of a recurrent layer have unknown rows whatever the rows of its inputs. TensorFlow's shape
inference stops at the loop. Here it goes on with the body, for the shapes of the loop's inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import tensorflow as tf

from tensoropt.graph.from_tensorflow.library import called_functions, function_closure
from tensoropt.tensorflow_private import function_def_to_graph, ops

__all__ = ["LOOPS", "inferred_graph", "loop_body"]

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
LOOPS = frozenset({"StatelessWhile", "While"})
_SHAPES = "_output_shapes"
"""Attribute of a node whose shapes TensorFlow joins with those that it infers, in an import."""

Shapes = list[tf.TensorShape]


def inferred_graph(definition: tf.compat.v1.GraphDef) -> tf.Graph:
    """Return the graph of a definition, with all shapes that follow from those of placeholders.

    Args:
        definition: the definition, with the functions that it calls. Its calls and loops get the
            shapes of their outputs.

    Raises:
        ValueError: from TensorFlow, if operators cannot have inputs of these shapes.
    """
    nodes = {node.name: node for node in definition.node}
    while True:
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(definition, name="")
        found = {op.name: _outputs(op) for op in graph.get_operations() if _is_open(op)}
        more = {name: shapes for name, shapes in found.items() if shapes is not None}
        if not more:
            return graph
        ops.dismantle_graph(graph)
        for name, shapes in more.items():
            attribute = nodes[name].attr[_SHAPES].list
            del attribute.shape[:]
            attribute.shape.extend(shape.as_proto() for shape in shapes)


@contextmanager
def loop_body(loop: tf.Operation) -> Iterator[Sequence[tf.Tensor]]:
    """The results of a loop's body, in a graph with the shapes of the loop within the context.

    Args:
        loop: an operation of `LOOPS`, in a graph of `inferred_graph`.
    """
    with _body(loop, "body", _of_loop(loop)) as results:
        yield results


def _is_open(operation: tf.Operation) -> bool:
    """Whether a function may tell more about an operation's outputs."""
    kinds = _CALLS | LOOPS | {"TensorListStack"}
    return operation.type in kinds and not all(
        output.shape.is_fully_defined() for output in operation.outputs
    )


def _outputs(operation: tf.Operation) -> Shapes | None:
    """The shapes of an operation's outputs; None if no more is known than TensorFlow infers."""
    before = _shapes(operation.outputs)
    try:
        if operation.type in _CALLS:
            with _body(operation, "f", _shapes(operation.inputs)) as results:
                found = _shapes(results)
        elif operation.type in LOOPS:
            found = _of_loop(operation)
        else:
            found = [tf.TensorShape([None]).concatenate(_of_items(operation.inputs[0]))]
    except ValueError:  # the function was traced for other shapes; a call of it says so
        return None
    pairs = zip(before, found, strict=True)
    after = [old.merge_with(new) if old.is_compatible_with(new) else old for old, new in pairs]
    return None if repr(after) == repr(before) else after


def _of_loop(loop: tf.Operation) -> Shapes:
    """The shapes of a loop's variables that its body keeps, from those before the loop."""
    shapes = _shapes(loop.inputs)
    while True:
        with _body(loop, "body", shapes) as results:
            kept = [
                before.most_specific_compatible_shape(after)
                for before, after in zip(shapes, _shapes(results), strict=True)
            ]
        if repr(kept) == repr(shapes):
            return kept
        shapes = kept


def _of_items(items: tf.Tensor) -> tf.TensorShape:
    """The shape of the tensors in a list, as a loop puts them in; unknown if no loop does."""
    operation = items.op
    if operation.type == "TensorListSetItem":
        return operation.inputs[2].shape
    if operation.type == "Identity":
        return _of_items(operation.inputs[0])
    if operation.type in LOOPS:
        with _body(operation, "body", _of_loop(operation)) as results:
            return _of_items(results[items.value_index])
    return tf.TensorShape(None)


def _shapes(tensors: Sequence[tf.Tensor]) -> Shapes:
    return [tensor.shape for tensor in tensors]


@contextmanager
def _body(operation: tf.Operation, name: str, shapes: Shapes) -> Iterator[Sequence[tf.Tensor]]:
    """The results of a function for inputs of some shapes, in a graph within the context."""
    functions = function_closure(operation.graph, called_functions(operation.node_def.attr))
    function = functions[operation.get_attr(name).name]
    with operation.graph.as_default():
        definition, flat = function_def_to_graph.function_def_to_graph_def(function)
    definition.library.Clear()
    definition.library.function.extend(functions.values())
    for node, shape in zip(definition.node, shapes, strict=False):  # inputs come first
        node.attr["shape"].shape.CopyFrom(shape.as_proto())
    graph = inferred_graph(definition)
    try:
        results = [flat[function.ret[each.name]] for each in function.signature.output_arg]
        yield [graph.get_tensor_by_name(name) for name in results]
    finally:
        ops.dismantle_graph(graph)
