"""Properties of TensorFlow operations: outputs, control inputs, and the variables they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf

from tensoropt.graph.from_tensorflow.partial_shapes import with_partial_shape
from tensoropt.graph.operator import VARIABLE_TYPES
from tensoropt.tensor_spec import TensorSpec

__all__ = ["control_inputs", "has_operation", "mutates", "needed_operations", "output_spec"]


def has_operation(graph: tf.Graph, name: str) -> bool:
    """Whether a graph has an operation of this name."""
    try:
        graph.get_operation_by_name(name)
    except KeyError:
        return False
    return True


def needed_operations(graph: tf.Graph, roots: Sequence[str]) -> Iterator[tf.Operation]:
    """Yield the operations of some names, and all operations they need."""
    waiting = [graph.get_operation_by_name(name) for name in roots]
    seen = set(roots)
    while waiting:
        operation = waiting.pop()
        yield operation
        for needed in [*(t.op for t in operation.inputs), *operation.control_inputs]:
            if needed.name not in seen:
                seen.add(needed.name)
                waiting.append(needed)


def output_spec(tensor: tf.Tensor) -> TensorSpec:
    """Return the shape and dtype of an output. A variable's handle has the variable's shape."""
    shape = tensor.shape
    if tensor.op.type in VARIABLE_TYPES:
        shape = tf.TensorShape(tensor.op.get_attr("shape"))
    rank = shape.rank
    dims = tuple(-1 if n is None else n for n in shape.as_list()) if rank is not None else ()
    return TensorSpec(with_partial_shape(tensor.op, dims), tensor.dtype.name)


def control_inputs(operation: tf.Operation) -> list[tf.Operation]:
    """Return the control inputs sorted by name. TensorFlow orders many of them by address."""
    return sorted(operation.control_inputs, key=lambda control: str(control.name))


def mutates(operation: tf.Operation, number: int, spec: TensorSpec) -> bool:
    """Whether an input is a variable itself, not its value, so that the operation may change it."""
    if spec.dtype == "resource":
        return bool(operation.type != "ReadVariableOp")
    return spec.dtype.endswith("_ref") and _takes_reference(operation, number)


def _takes_reference(operation: tf.Operation, number: int) -> bool:
    """Whether an input is declared as a reference to a variable."""
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
