"""Properties of TensorFlow operations: outputs, control inputs, and the variables they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tensoropt.graph.operator import VARIABLE_TYPES
from tensoropt.tensor_spec import TensorSpec
from tensoropt.tensorflow_private import smart_cond

__all__ = [
    "ELEMENT_TYPES",
    "PIPELINE_TYPES",
    "QUEUE_ACTIONS",
    "control_inputs",
    "has_operation",
    "mutates",
    "needed_operations",
    "output_spec",
    "with_partial_shape",
]

Values = npt.NDArray[np.float64]
"""Integers, where NaN stands for an unknown one. Arithmetic with NaN gives NaN."""


def with_partial_shape(operation: tf.Operation, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an operation's first output, with the extents that a Reshape's operand
    gives.

    TensorFlow's shape inference evaluates a computed shape only as a whole. For example
    `tf.tensordot` reshapes sequences of unknown length to a matrix of known width, and the
    inference does not find the width. Here each element is known or unknown on its own.

    Args:
        operation: any operation.
        shape: the inferred shape of its first output, -1 for an unknown extent.
    """
    if operation.type != "Reshape" or -1 not in shape:
        return shape
    new_shape = _value(operation.inputs[1])
    if new_shape is None or new_shape.shape != (len(shape),):
        return shape
    pairs = zip(shape, new_shape.tolist(), strict=True)
    return tuple(int(given) if inferred < 0 <= given else inferred for inferred, given in pairs)


def _value(tensor: tf.Tensor) -> Values | None:
    """Return the elements of a small tensor of integers, None if none of them is known."""
    operation = tensor.op
    if operation.type == "Shape":
        shape = operation.inputs[0].shape
        return None if shape.rank is None else np.array(shape.as_list(), np.float64)
    constant = smart_cond.smart_constant_value(tensor) if tensor.dtype.is_integer else None
    if constant is not None:
        return np.asarray(constant, np.float64)
    if operation.type not in _ARITHMETIC:
        return None
    inputs = [_value(each) for each in operation.inputs]
    values = [each for each in inputs if each is not None]
    if len(values) < len(inputs):
        return None
    result = _ARITHMETIC[operation.type](operation, *values)
    return None if result is None else np.asarray(result, np.float64)


def _gathered(op: tf.Operation, values: Values, positions: Values, axis: Values) -> Any:
    if op.get_attr("batch_dims") or _is_open(positions, axis):
        return None
    return np.take(values, positions.astype(int), int(axis))


def _concatenated(_: tf.Operation, *values: Values) -> Any:
    return None if _is_open(values[-1]) else np.concatenate(values[:-1], int(values[-1]))


def _reduced_product(op: tf.Operation, values: Values, axis: Values) -> Any:
    if _is_open(axis):
        return None
    dims = tuple(axis.astype(int).reshape(-1).tolist())
    return np.prod(values, dims, keepdims=op.get_attr("keep_dims"))


def _sliced(op: tf.Operation, values: Values, *bounds: Values) -> Any:
    """Return one element of a vector, or a range of elements."""
    masked = op.get_attr("new_axis_mask") or op.get_attr("ellipsis_mask")
    if masked or values.ndim != 1 or bounds[0].size != 1 or _is_open(*bounds):
        return None
    begin, end, stride = (int(bound[0]) for bound in bounds)
    if op.get_attr("shrink_axis_mask"):
        return values[begin]
    open_begin, open_end = op.get_attr("begin_mask"), op.get_attr("end_mask")
    return values[None if open_begin else begin : None if open_end else end : stride]


def _is_open(*operands: Values) -> bool:
    return any(bool(np.isnan(each).any()) for each in operands)


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "ConcatV2": _concatenated,
    "GatherV2": _gathered,
    "Identity": lambda _, values: values,
    "Mul": lambda _, left, right: left * right,
    "Pack": lambda op, *values: np.stack(values, op.get_attr("axis")),
    "Prod": _reduced_product,
    "StridedSlice": _sliced,
}


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


ELEMENT_TYPES = frozenset(
    {"IteratorGetNext", "IteratorGetNextSync", "IteratorToStringHandle"}
    | {"QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"}
    | {"QueueIsClosedV2", "QueueSizeV2", "ReaderReadUpToV2", "ReaderReadV2"}
)
"""Types that return elements or the state of a data pipeline. Their outputs are fed."""

QUEUE_ACTIONS = frozenset({"QueueCloseV2", "QueueEnqueueManyV2", "QueueEnqueueV2"})
"""Types that fill and close queues in threads of their own."""

PIPELINE_TYPES = ELEMENT_TYPES | QUEUE_ACTIONS | {"MakeIterator"}
"""Types that act on a data pipeline. In the parallel graph they become NoOps."""
