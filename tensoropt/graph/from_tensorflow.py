"""Import of a TensorFlow graph: bind unknown shapes, fold constants, cut at recorded gradients.

A gather from a resource variable becomes a read and a gather, so that where a table is stored and
how its rows are looked up are two choices.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import smart_cond  # folds every shape chain; has no public name

from tensoropt.errors import GraphError
from tensoropt.graph.operator import (
    GRADIENT,
    VARIABLE_TYPES,
    GradientTag,
    Graph,
    Operator,
    TensorName,
)
from tensoropt.graph.tensor import TensorSpec

__all__ = [
    "ELEMENT_TYPES",
    "FED_OUTPUT",
    "GRADIENT_ATTRIBUTE",
    "INITIALISED_TYPES",
    "PIPELINE_TYPES",
    "QUEUE_ACTIONS",
    "bind_shapes",
    "fed_operator",
    "import_graph",
    "python_attribute",
]

GRADIENT_ATTRIBUTE = "_tensoropt_gradient"
"""Attribute of the Identity operators that mark a script's gradients; its value is JSON."""

ELEMENT_TYPES = frozenset(
    {"IteratorGetNext", "IteratorGetNextSync", "IteratorToStringHandle"}
    | {"QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"}
    | {"QueueIsClosedV2", "QueueSizeV2", "ReaderReadUpToV2", "ReaderReadV2"}
)
"""Operators that say something of a data pipeline; it comes fed."""

QUEUE_ACTIONS = frozenset({"QueueCloseV2", "QueueEnqueueManyV2", "QueueEnqueueV2"})
"""Operators that fill and close queues, in threads of their own."""

PIPELINE_TYPES = ELEMENT_TYPES | QUEUE_ACTIONS | {"MakeIterator"}
"""Operators that act on a data pipeline, outside of the parallel graph: nothing is left of them."""

INITIALISED_TYPES = frozenset({"VarIsInitializedOp", "IsVariableInitialized"})
_FOLDED_ELEMENTS = 1 << 16
FED_OUTPUT = re.compile(r"(?P<operator>.+)/fed_(?P<index>\d+)")
_V1_CONTROL_FLOW = frozenset(
    {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"}
    | {"RefEnter", "RefExit", "RefMerge", "RefNextIteration", "RefSwitch"}
)
_RESOURCE_GATHERS = {"ResourceGather": "GatherV2", "ResourceGatherNd": "GatherNd"}
_SHAPE_TYPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})


def bind_shapes(graph: tf.Graph, shapes: Mapping[str, Sequence[int]]) -> tf.Graph:
    """A copy of a graph in which what is fed has these shapes.

    A fed tensor that is no placeholder becomes one, which cuts off what it was computed from.
    TensorFlow's shape inference carries the shapes through the rest of the graph.

    Args:
        graph: the script's graph.
        shapes: by `fed_operator`.
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
        tf.compat.v1.import_graph_def(definition, name="")
    _say_shapes(graph, bound)
    return bound


def _say_shapes(graph: tf.Graph, bound: tf.Graph) -> None:
    """Carry over what only the script says of shapes (``set_shape``): no GraphDef has it."""
    for operation in bound.get_operations():
        for number, tensor in enumerate(operation.outputs):
            if tensor.shape.is_fully_defined() or operation.type == "Placeholder":
                continue
            said = graph.get_operation_by_name(operation.name).outputs[number].shape
            if said.rank is not None and tensor.shape.is_compatible_with(said):
                tensor.set_shape(said)


def fed_operator(tensor: tf.Tensor) -> str:
    """The name under which a fed tensor is known: its operator's, where that has one output."""
    if len(tensor.op.outputs) == 1:
        return str(tensor.op.name)
    return f"{tensor.op.name}/fed_{tensor.value_index}"


def _make_placeholder(node: Any, tensor: tf.Tensor, shapes: Mapping[str, Sequence[int]]) -> None:
    shape = tf.TensorShape(list(shapes[node.name]))
    if node.op != "Placeholder":
        del node.input[:]
        node.attr.clear()
        node.op = "Placeholder"
        node.attr["dtype"].type = tensor.dtype.base_dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(shape.as_proto())


def import_graph(
    graph: tf.Graph,
    roots: Iterable[str],
    shapes: Mapping[str, Sequence[int]] | None = None,
    unset: frozenset[str] | None = None,
) -> Graph:
    """The part of a TensorFlow graph that some operators need, as a logical graph.

    Args:
        graph: the script's graph.
        roots: names of the operators to run.
        shapes: of what is fed, by `fed_operator`; a placeholder of known shape may be left out.
        unset: where given, the variables that have no value yet; whether a variable is
            initialised is then a constant.

    Shape arithmetic and other computations on constants are folded into constants. A gradient
    that was recorded is one `GRADIENT` operator that depends on what is differentiated; the
    operators that TensorFlow made for it are left out.

    Raises:
        GraphError: if a root is not in the graph.
    """
    bound = bind_shapes(graph, shapes or {})
    importer = _Importer(bound, unset)
    for root in roots:
        try:
            operation = bound.get_operation_by_name(root)
        except KeyError:
            raise GraphError(
                f"an operator to run is in the script's graph. Got {root!r}, which is not."
            ) from None
        importer.visit(operation)
    return Graph(importer.operators)


class _Importer:
    def __init__(self, graph: tf.Graph, unset: frozenset[str] | None) -> None:
        self._graph = graph
        self._names = {operation.name for operation in graph.get_operations()}
        self._after_updates: dict[TensorName, tuple[set[str], list[str]]] = {}
        self._unset = unset
        self.operators: dict[str, Operator] = {}
        self._foldable: dict[str, bool] = {}
        self._folded: dict[str, Any] = {}

    def visit(self, root: tf.Operation) -> None:
        """Add an operator after everything it needs (an explicit stack: graphs are deep)."""
        stack: list[tuple[tf.Operation, bool]] = [(root, False)]
        while stack:
            operation, ready = stack.pop()
            if operation.name in self.operators:
                continue
            if ready:
                self.operators[operation.name] = self._convert(operation)
                continue
            stack.append((operation, True))
            for needed in reversed(self._needs(operation)):
                if needed.name not in self.operators:
                    stack.append((needed, False))

    def _needs(self, operation: tf.Operation) -> list[tf.Operation]:
        if operation.type in PIPELINE_TYPES:
            return []
        if self._value(operation) is not None:
            return self._waits(operation)
        tag = _tag(operation)
        if tag is not None:
            names = [*tag.ys, tag.x, *(g for g in tag.grad_ys if g), *tag.stop_gradients]
            needed = [name.operator for name in names] + list(tag.after)
            return [self._graph.get_operation_by_name(name) for name in needed]
        return [tensor.op for tensor in operation.inputs] + _controls(operation)

    def _convert(self, operation: tf.Operation) -> Operator:
        if operation.type in PIPELINE_TYPES:
            outputs = tuple(_spec(tensor, operation) for tensor in operation.outputs)
            return Operator(operation.name, "NoOp", (), (), outputs)
        value = self._value(operation)
        if value is not None:
            spec = TensorSpec(tuple(value.shape), operation.outputs[0].dtype.name, value)
            return Operator(
                name=operation.name,
                type="Const",
                inputs=(),
                input_specs=(),
                outputs=(spec,),
                attributes={"dtype": spec.dtype},
                control_inputs=tuple(control.name for control in self._waits(operation)),
            )
        tag = _tag(operation)
        if tag is not None:
            return self._convert_gradient(operation, tag)
        if operation.type in _V1_CONTROL_FLOW:
            raise GraphError(
                "loops and conditionals are functional ones (control flow v2). Got the operator "
                f"{operation.name!r} of type {operation.type}, as graphs have that were built "
                "before tensoropt was imported or loaded from a file. Build the graph again, after "
                "the import: it calls tf.enable_control_flow_v2() itself."
            )
        if operation.type in _RESOURCE_GATHERS and operation.inputs[0].op.type in VARIABLE_TYPES:
            return self._convert_gather(operation)
        inputs = tuple(TensorName(t.op.name, t.value_index) for t in operation.inputs)
        specs = tuple(self.operators[name.operator].outputs[name.index] for name in inputs)
        return Operator(
            name=operation.name,
            type=operation.type,
            inputs=inputs,
            input_specs=specs,
            outputs=tuple(_spec(tensor, operation) for tensor in operation.outputs),
            attributes=_attributes(operation),
            control_inputs=tuple(control.name for control in _controls(operation)),
            mutates=tuple(i for i, spec in enumerate(specs) if _mutable(operation, i, spec)),
        )

    def _convert_gather(self, operation: tf.Operation) -> Operator:
        """A gather under the script's name, of a read of its table.

        Gathers share the read, but for those that come after an update of the table. These wait
        for it themselves or, since TensorFlow leaves out what is implied, through their indices.
        """
        handle, indices = (TensorName(t.op.name, t.value_index) for t in operation.inputs)
        controls = tuple(control.name for control in _controls(operation))
        updated = self._updated(handle)
        waits = not updated.isdisjoint((*controls, indices.operator))
        shape = self.operators[handle.operator].outputs[handle.index].shape
        dtype = _spec(operation.outputs[0], operation).dtype
        table = self._add(
            f"{operation.name if waits else handle.operator}/table",
            "ReadVariableOp",
            (handle,),
            TensorSpec(shape, dtype),
            {"dtype": dtype},
            (*controls, indices.operator) if waits else (),
        )
        inputs = [table, indices]
        attributes = {"Tparams": dtype, "Tindices": operation.inputs[1].dtype.name}
        if operation.type == "ResourceGather":
            batch_dims = operation.get_attr("batch_dims")
            axis = TensorSpec((), "int32", np.array(batch_dims, np.int32))
            inputs.append(self._add(f"{operation.name}/axis", "Const", (), axis))
            attributes |= {"Taxis": "int32", "batch_dims": batch_dims}
        return Operator(
            name=operation.name,
            type=_RESOURCE_GATHERS[operation.type],
            inputs=tuple(inputs),
            input_specs=tuple(self.operators[n.operator].outputs[n.index] for n in inputs),
            outputs=(_spec(operation.outputs[0], operation),),
            attributes=attributes,
            control_inputs=controls,
            synthetic=True,
        )

    def _updated(self, variable: TensorName) -> set[str]:
        """What comes after an update of a variable, by name, among the operators so far."""
        found, seen = self._after_updates.setdefault(variable, (set(), []))
        for operator in itertools.islice(self.operators.values(), len(seen), None):
            seen.append(operator.name)
            changes = any(operator.inputs[number] == variable for number in operator.mutates)
            needed = (*(tensor.operator for tensor in operator.inputs), *operator.control_inputs)
            if changes or not found.isdisjoint(needed):
                found.add(operator.name)
        return found

    def _add(
        self,
        name: str,
        kind: str,
        inputs: tuple[TensorName, ...],
        output: TensorSpec,
        attributes: Mapping[str, object] | None = None,
        controls: tuple[str, ...] = (),
    ) -> TensorName:
        """Add an operator that the script does not have, under a name that it does not use."""
        while name in self._names:
            name += "_"
        if name not in self.operators:
            self.operators[name] = Operator(
                name=name,
                type=kind,
                inputs=inputs,
                input_specs=tuple(self.operators[n.operator].outputs[n.index] for n in inputs),
                outputs=(output,),
                attributes=attributes or {"dtype": output.dtype},
                control_inputs=controls,
                synthetic=True,
            )
        return TensorName(name, 0)

    def _convert_gradient(self, operation: tf.Operation, tag: GradientTag) -> Operator:
        inputs = (*tag.ys, *(g for g in tag.grad_ys if g is not None))
        spec = _spec(operation.outputs[0], operation)
        if tag.part == "dense":
            shape = self.operators[tag.x.operator].outputs[tag.x.index].shape
            spec = TensorSpec(shape, spec.dtype)
        return Operator(
            name=operation.name,
            type=GRADIENT,
            inputs=inputs,
            input_specs=tuple(self.operators[n.operator].outputs[n.index] for n in inputs),
            outputs=(spec,),
            attributes={
                "x": str(tag.x),
                "part": tag.part,
                "call": tag.call,
                "grad_ys": tuple(map(str, tag.grad_ys)),
                "stop_gradients": tuple(map(str, tag.stop_gradients)),
            },
            control_inputs=tag.after,
            gradient=tag,
        )

    def _waits(self, operation: tf.Operation) -> list[tf.Operation]:
        """What the constants that an operator is folded from run after.

        TensorFlow leaves a dependency out where an input has it already: of ``assign_add(step,
        1)`` after an update, only the constant 1 waits for the update.
        """
        found: dict[str, tf.Operation] = {}
        stack, seen = [operation], {operation.name}
        while stack:
            current = stack.pop()
            found.update({control.name: control for control in _controls(current)})
            inputs = [] if current.type in _SHAPE_TYPES else [t.op for t in current.inputs]
            stack += [op for op in inputs if op.name not in seen]
            seen.update(op.name for op in inputs)
        return list(found.values())

    def _value(self, operation: tf.Operation) -> Any:
        """The operator's one output where it follows from constants and shapes, else None."""
        if self._unset is not None and operation.type in INITIALISED_TYPES:
            return np.array(operation.inputs[0].op.name not in self._unset)
        if not self._is_foldable(operation):
            return None
        if operation.name not in self._folded:
            tensor = operation.outputs[0]
            value = smart_cond.smart_constant_value(tensor)
            if value is not None:
                value = np.asarray(value, dtype=tensor.dtype.as_numpy_dtype)
            self._folded[operation.name] = value
        return self._folded[operation.name]

    def _is_foldable(self, operation: tf.Operation) -> bool:
        stack = [operation]
        while stack:
            current = stack[-1]
            if current.name in self._foldable:
                stack.pop()
                continue
            verdict = _foldable_alone(current)
            if verdict is None:
                unknown = [t.op for t in current.inputs if t.op.name not in self._foldable]
                if unknown:
                    stack.extend(unknown)
                    continue
                verdict = all(self._foldable[t.op.name] for t in current.inputs)
            self._foldable[current.name] = verdict
            stack.pop()
        return self._foldable[operation.name]


def _controls(operation: tf.Operation) -> list[tf.Operation]:
    """Control inputs in one order; TensorFlow lists many of them in that of their addresses."""
    return sorted(operation.control_inputs, key=lambda control: str(control.name))


def _foldable_alone(operation: tf.Operation) -> bool | None:
    """Whether an operator folds, None where its inputs decide."""
    if len(operation.outputs) != 1 or operation.control_inputs:
        return bool(operation.type == "Const")
    tensor = operation.outputs[0]
    if operation.type == "Const":
        return tensor.dtype not in (tf.string, tf.resource, tf.variant)
    known = tensor.shape.num_elements()
    if known is None or known > _FOLDED_ELEMENTS or not _is_numeric(tensor.dtype):
        return False
    if operation.type in _SHAPE_TYPES:
        shape = operation.inputs[0].shape
        return bool(
            shape.rank is not None if operation.type == "Rank" else shape.is_fully_defined()
        )
    if operation.op_def.is_stateful or not operation.inputs or _tag(operation) is not None:
        return False
    return None


def _is_numeric(dtype: tf.DType) -> bool:
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_bool) and not dtype._is_ref_dtype


def _spec(tensor: tf.Tensor, operation: tf.Operation) -> TensorSpec:
    shape = tensor.shape
    if operation.type in VARIABLE_TYPES:
        shape = tf.TensorShape(operation.get_attr("shape"))
    rank = shape.rank
    dims = tuple(-1 if n is None else n for n in shape.as_list()) if rank is not None else ()
    return TensorSpec(dims, tensor.dtype.name)


def _mutable(operation: tf.Operation, number: int, spec: TensorSpec) -> bool:
    """Whether an input is a variable itself, not its value."""
    if spec.dtype == "resource":
        return bool(operation.type != "ReadVariableOp")
    return spec.dtype.endswith("_ref") and bool(_is_reference_input(operation, number))


def _is_reference_input(operation: tf.Operation, number: int) -> bool:
    position = 0
    for argument in operation.op_def.input_arg:
        count = 1
        if argument.number_attr:
            count = operation.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            count = len(operation.get_attr(argument.type_list_attr))
        if position <= number < position + count:
            return bool(argument.is_ref)
        position += count
    return False


def _tag(operation: tf.Operation) -> GradientTag | None:
    if operation.type != "Identity" or GRADIENT_ATTRIBUTE not in operation.node_def.attr:
        return None
    text = json.loads(operation.get_attr(GRADIENT_ATTRIBUTE).decode())
    return GradientTag(
        call=text["call"],
        part=text["part"],
        ys=tuple(TensorName.parse(name) for name in text["ys"]),
        x=TensorName.parse(text["x"]),
        grad_ys=tuple(TensorName.parse(name) if name else None for name in text["grad_ys"]),
        stop_gradients=tuple(TensorName.parse(name) for name in text["stop_gradients"]),
        after=tuple(text["after"]),
    )


def _attributes(operation: tf.Operation) -> dict[str, object]:
    return {
        name: python_attribute(value)
        for name, value in operation.node_def.attr.items()
        if not name.startswith("_")
    }


def python_attribute(value: attr_value_pb2.AttrValue) -> object:
    """An attribute as a plain Python value: types by name, shapes and lists as tuples, tensors as
    digests."""
    kind = value.WhichOneof("value")
    if kind == "s":
        return value.s.decode("utf-8", "backslashreplace")
    if kind in ("i", "f", "b"):
        return getattr(value, kind)
    if kind == "type":
        return str(tf.dtypes.as_dtype(value.type).name)
    if kind == "shape":
        return _shape(value.shape)
    if kind == "list":
        items = value.list
        return tuple(
            [text.decode("utf-8", "backslashreplace") for text in items.s]
            + [*items.i, *items.f, *items.b]
            + [str(tf.dtypes.as_dtype(code).name) for code in items.type]
            + [_shape(shape) for shape in items.shape]
        )
    if kind == "func":
        return value.func.name
    if kind == "tensor":  # of text, mostly: numbers are folded, and known by their value
        return hashlib.sha256(value.tensor.SerializeToString(deterministic=True)).hexdigest()
    return None


def _shape(proto: Any) -> tuple[int, ...] | None:
    shape = tf.TensorShape(proto)
    return None if shape.rank is None else tuple(-1 if n is None else n for n in shape.as_list())
