"""Extents that follow from a shape of which others are open.

TensorFlow's shape inference evaluates a shape that a script computes as a whole or not at all. So
`tf.tensordot` of a sequence of unknown length, which reshapes it to a matrix of a known width,
leaves the width open. Here each element is known or not.
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
"""Integers, NaN where one is not known: arithmetic with it gives what is not known either."""


def with_partial_shape(operation: tf.Operation, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what an operation makes, with what a Reshape's operand says of it.

    Args:
        operation: any.
        shape: of its first output, -1 for an extent that is not known.
    """
    if operation.type != "Reshape" or -1 not in shape:
        return shape
    said = _value(operation.inputs[1])
    if said is None or said.shape != (len(shape),):
        return shape
    pairs = zip(shape, said.tolist(), strict=True)
    return tuple(int(own) if known < 0 <= own else known for known, own in pairs)


def _value(tensor: tf.Tensor) -> Values | None:
    """What is known of a small tensor of integers; None if nothing is."""
    operation = tensor.op
    if operation.type == "Shape":
        shape = operation.inputs[0].shape
        return None if shape.rank is None else np.array(shape.as_list(), np.float64)
    known = smart_cond.smart_constant_value(tensor) if tensor.dtype.is_integer else None
    if known is not None:
        return np.asarray(known, np.float64)
    if operation.type not in _ARITHMETIC:
        return None
    inputs = [_value(each) for each in operation.inputs]
    values = [each for each in inputs if each is not None]
    if len(values) < len(inputs):
        return None
    found = _ARITHMETIC[operation.type](operation, *values)
    return None if found is None else np.asarray(found, np.float64)


def _gathered(op: tf.Operation, values: Values, places: Values, axis: Values) -> Any:
    if op.get_attr("batch_dims") or _is_open(places, axis):
        return None
    return np.take(values, places.astype(int), int(axis))


def _joined(_: tf.Operation, *values: Values) -> Any:
    return None if _is_open(values[-1]) else np.concatenate(values[:-1], int(values[-1]))


def _product(op: tf.Operation, values: Values, axis: Values) -> Any:
    if _is_open(axis):
        return None
    dims = tuple(axis.astype(int).reshape(-1).tolist())
    return np.prod(values, dims, keepdims=op.get_attr("keep_dims"))


def _sliced(op: tf.Operation, values: Values, *bounds: Values) -> Any:
    """One element of a vector, or a run of them."""
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
    "ConcatV2": _joined,
    "GatherV2": _gathered,
    "Identity": lambda _, values: values,
    "Mul": lambda _, left, right: left * right,
    "Pack": lambda op, *values: np.stack(values, op.get_attr("axis")),
    "Prod": _product,
    "StridedSlice": _sliced,
}
