"""Infer extents of a reshaped tensor if some elements of the new shape are unknown.

TensorFlow's shape inference evaluates a computed shape only as a whole. For example `tf.tensordot`
reshapes sequences of unknown length to a matrix of known width, and the inference does not find the
width. Here each element of a shape is known or unknown on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tensoropt.tensorflow_private import smart_cond

__all__ = ["with_partial_shape"]

Values = npt.NDArray[np.float64]
"""Integers, where NaN stands for an unknown one. Arithmetic with NaN gives NaN."""


def with_partial_shape(operation: tf.Operation, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an operation's first output, with the extents that a Reshape's operand
    gives.

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
