"""Copy the part of a script's graph that some operators need, with known shapes of fed tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.graph.from_tensorflow.called_shapes import inferred_graph
from tensoropt.graph.from_tensorflow.library import called_functions, function_closure
from tensoropt.graph.from_tensorflow.operations import has_operation, output_spec
from tensoropt.graph.from_tensorflow.recorded import gradient_tag, needed_by_gradient
from tensoropt.graph.operator import Graph, TensorName
from tensoropt.tensorflow_private import ops

__all__ = ["FED_OUTPUT", "bind_shapes", "fed_operator", "output_shapes"]

_PASSED = frozenset({"ConcatV2", "Identity"})
"""Types that only join or pass on the values of slices, when several lookups have one gradient."""

FED_OUTPUT = re.compile(r"(?P<operator>.+)/fed_(?P<index>\d+)")
"""Matches the name of a fed output of an operator with several outputs, see `fed_operator`."""


def fed_operator(tensor: tf.Tensor) -> str:
    """Return the name of a fed tensor: its operator's if that has one output."""
    if len(tensor.op.outputs) == 1:
        return str(tensor.op.name)
    return f"{tensor.op.name}/fed_{tensor.value_index}"


def bind_shapes(
    graph: tf.Graph, roots: Iterable[str], shapes: Mapping[str, Sequence[int | None]]
) -> tf.Graph:
    """Return a copy of the operators that some operators need, in which fed tensors have these
    shapes.

    A fed tensor that is not a placeholder becomes one, so the operators that compute it are left
    out. So are the operators of recorded gradients. A dense gradient by x has the shape of x. The
    values of slices have a row for each row number that is looked up. TensorFlow's shape inference
    determines all other shapes of the copy.

    Args:
        graph: the script's graph.
        roots: names of the operators. Those that are not in the graph are ignored.
        shapes: shapes by `fed_operator`; None for an extent that is left open.

    Raises:
        GraphError: if an operator cannot have inputs of these shapes.
    """
    roots = tuple(roots)
    copy = _Copy(graph, shapes)
    bound = _inferred(copy.of(roots), shapes)
    has_open_extents = any(extent is None for shape in shapes.values() for extent in shape)
    slices = [bound.get_operation_by_name(name) for name in copy.cut_slices]
    are_known = all(operation.outputs[0].shape.is_fully_defined() for operation in slices)
    if not has_open_extents and not are_known:
        ops.dismantle_graph(bound)
        bound = _inferred(_Copy(graph, shapes, cuts_slices=False).of(roots), shapes)
    _copy_set_shapes(graph, bound)
    return bound


def output_shapes(
    script: tf.Graph, graph: Graph, roots: Sequence[str], shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return the shapes of the outputs of the script's operators, by operator name.

    Args:
        script: the script's graph.
        graph: the graph that was imported from it for some roots.
        roots: names of the roots.
        shapes: shapes of fed tensors in the run, see `bind_shapes`.
    """
    bound = bind_shapes(script, roots, shapes)
    try:
        shapes_of = {}
        for operator in graph:
            if operator.is_constant or not operator.outputs:
                continue
            try:
                operation = bound.get_operation_by_name(operator.name)
            except KeyError:
                continue  # the importer added it
            specs = map(output_spec, operation.outputs)
            shapes_of[operator.name] = tuple(spec.shape for spec in specs)
        return shapes_of
    finally:
        ops.dismantle_graph(bound)


def _inferred(
    definition: tf.compat.v1.GraphDef, shapes: Mapping[str, Sequence[int | None]]
) -> tf.Graph:
    """Return the graph of a definition, with the shapes that TensorFlow infers.

    Fed tensors have these shapes.
    """
    try:
        return inferred_graph(definition)
    except ValueError as error:
        fed = ", ".join(f"{name!r}: {list(shape)}" for name, shape in shapes.items())
        raise GraphError(
            f"the shapes of fed tensors fit together in the script's graph. Got {fed}: {error} "
            "Feed the same number of examples everywhere, or correct batch_size or shapes."
        ) from None


class _Copy:
    """The definition of a part of a graph, with placeholders for fed tensors.

    Args:
        graph: the script's graph.
        shapes: see `bind_shapes`.
        cuts_slices: whether the values of slices are copied without the operators that compute
            them.

    Attributes:
        cut_slices: names of the operators whose input was replaced by a placeholder for this.
    """

    def __init__(
        self,
        graph: tf.Graph,
        shapes: Mapping[str, Sequence[int | None]],
        cuts_slices: bool = True,
    ) -> None:
        self.cut_slices: list[str] = []
        self._graph = graph
        self._shapes = shapes
        self._cuts_slices = cuts_slices
        self._slices: set[str] = set()  # names of the markers of the values of slices
        self._fed_outputs = {name for name in shapes if FED_OUTPUT.fullmatch(name)}
        self._definition = tf.compat.v1.GraphDef(versions=graph.graph_def_versions)

    def of(self, roots: Iterable[str]) -> tf.compat.v1.GraphDef:
        """Return the definition of the operators that some operators need."""
        waiting = list(roots)
        # Operators of the values of slices come last: an operator needed elsewhere is copied as it
        # is.
        values: list[str] = []
        seen: set[str] = set()
        called: set[str] = set()
        while waiting or values:
            is_value = not waiting
            name = (waiting or values).pop()
            if name in seen:
                continue
            seen.add(name)
            node, further = self._node(name)
            if node is None:
                continue
            if is_value:
                self._cut_values(node)
            called.update(called_functions(node.attr))
            reads = [read.lstrip("^").partition(":")[0] for read in node.input]
            only_joins = name in self._slices or (is_value and node.op in _PASSED)
            (values if only_joins else waiting).extend(reads)
            waiting += further
        functions = function_closure(self._graph, called)
        self._definition.library.function.extend(functions.values())
        return self._definition

    def _node(self, name: str) -> tuple[tf.compat.v1.NodeDef | None, list[str]]:
        """Return the node of an operator, and the operators it needs besides its inputs.

        The node is None if there is no such operator.
        """
        if name in self._fed_outputs:
            fed = FED_OUTPUT.fullmatch(name)
            assert fed is not None, "names in _fed_outputs match the pattern"
            tensor = self._graph.get_tensor_by_name(f"{fed['operator']}:{fed['index']}")
            return self._placeholder(name, tensor.dtype, self._shapes[name]), []
        if not has_operation(self._graph, name):
            return None, []
        operation = self._graph.get_operation_by_name(name)
        if name in self._shapes and operation.type != "Placeholder":
            dtype = operation.outputs[0].dtype
            return self._placeholder(name, dtype, self._shapes[name]), []
        node = self._definition.node.add()
        node.CopyFrom(operation.node_def)
        node.device = ""
        node.attr.pop("_class", None)  # it may be colocated with an operator that is left out
        if name in self._shapes:
            node.attr["shape"].shape.CopyFrom(_proto(self._shapes[name]))
        elif node.op == "PlaceholderWithDefault":
            node.attr["shape"].shape.CopyFrom(operation.inputs[0].shape.as_proto())
        tag = gradient_tag(operation)
        needed = [] if tag is None else needed_by_gradient(tag)
        if tag is not None and tag.part == "dense":
            self._cut_gradient(node, tag.x, operation.outputs[0].dtype)
        elif tag is not None and tag.part == "values":
            self._slices.add(name)
        self._rename_fed(node)
        return node, needed

    def _cut_gradient(self, node: tf.compat.v1.NodeDef, x: TensorName, dtype: tf.DType) -> None:
        """Replace the input of a dense gradient by x, or by a placeholder of the shape of x."""
        tensor = self._graph.get_tensor_by_name(str(x))
        if tensor.dtype.base_dtype == dtype:
            node.input[:] = [str(x)]
        elif tensor.op.type == "VarHandleOp":
            name = self._new(f"{node.name}/like")
            shape = tf.TensorShape(tensor.op.get_attr("shape"))
            self._placeholder(name, dtype, shape)
            node.input[:] = [name]

    def _cut_values(self, node: tf.compat.v1.NodeDef) -> None:
        """Replace the gradient that is reshaped to the values of slices by a placeholder.

        The reshape gives it a row for each row number.
        """
        if node.op == "Reshape" and self._cuts_slices:
            name = self._new(f"{node.name}/arrives")
            self._placeholder(name, tf.as_dtype(node.attr["T"].type), tf.TensorShape(None))
            node.input[0] = name
            self.cut_slices.append(node.name)

    def _new(self, name: str) -> str:
        """Return a name that the script does not use."""
        while has_operation(self._graph, name):
            name += "_"
        return name

    def _rename_fed(self, node: tf.compat.v1.NodeDef) -> None:
        """Replace inputs that are fed outputs by their placeholders."""
        if not self._fed_outputs:
            return
        for number, read in enumerate(node.input):
            operator, _, index = read.partition(":")
            fed = f"{operator}/fed_{index or 0}"
            if fed in self._fed_outputs:
                node.input[number] = fed

    def _placeholder(
        self, name: str, dtype: tf.DType, shape: Sequence[int | None] | tf.TensorShape
    ) -> tf.compat.v1.NodeDef:
        node = self._definition.node.add(name=name, op="Placeholder")
        node.attr["dtype"].type = dtype.base_dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(_proto(shape))
        return node


def _proto(shape: Sequence[int | None] | tf.TensorShape) -> tf.compat.v1.TensorShapeProto:
    return tf.TensorShape(shape).as_proto()


def _copy_set_shapes(graph: tf.Graph, bound: tf.Graph) -> None:
    """Copy the shapes that the script has set (``set_shape``), which a GraphDef does not
    contain."""
    for operation in bound.get_operations():
        for number, tensor in enumerate(operation.outputs):
            if tensor.shape.is_fully_defined() or operation.type == "Placeholder":
                continue
            set_shape = graph.get_operation_by_name(operation.name).outputs[number].shape
            if set_shape.rank is not None and tensor.shape.is_compatible_with(set_shape):
                tensor.set_shape(set_shape)
