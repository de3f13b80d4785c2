"""The variables of a loop over tensors, as tensors that a function takes and returns.

A number is passed as it is. A ``tf.TensorArray`` is a list of tensors, which a plan cannot lay out:
its elements are stacked into one tensor for the function, which makes an array of them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.tensorflow_private import tensor_array_ops

__all__ = ["Passed", "arrays_as_tensors", "as_passed", "stacked", "with_shape"]

_RESERVED = "TensorListReserve"
_STACKED = "TensorListFromTensor"
"""Types of the operators that make an array without elements, and an array of a tensor's rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Passed:
    """A variable of a loop, passed to a function that runs the loop.

    Attributes:
        tensor: the function's argument.
        inside: converts the argument to the variable's first value.
        outside: converts the function's result to the variable's last value.
    """

    tensor: tf.Tensor
    inside: Callable[[tf.Tensor], Any]
    outside: Callable[[tf.Tensor], Any]


def as_passed(value: Any) -> Passed | None:
    """The form in which a loop's variable is passed; None if it cannot be passed."""
    if isinstance(value, tf.TensorArray):
        return _array(value)
    if value is None or (tf.is_tensor(value) and not isinstance(value, tf.Tensor)):
        return None
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype in (tf.variant, tf.resource):
        return None
    return Passed(tensor, lambda given: given, lambda end: with_shape(end, tf.shape(tensor)))


def stacked(value: Any) -> Any:
    """An array's elements as one tensor; other values as they are."""
    return value.stack() if isinstance(value, tf.TensorArray) else value


def with_shape(value: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """The tensor with its shape computed from other tensors; a function hides its shape."""
    return tf.reshape(value, value.shape if value.shape.is_fully_defined() else shape)


@contextmanager
def arrays_as_tensors() -> Iterator[None]:
    """A context in which elements of an array made from a tensor are read from that tensor."""
    kind = tensor_array_ops._GraphTensorArrayV2
    before = {name: getattr(kind, name) for name in _FROM_ROWS}
    for name, from_rows in _FROM_ROWS.items():
        setattr(kind, name, _reading(from_rows, before[name]))
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(kind, name, method)


_FROM_ROWS: dict[str, Callable[..., Any]] = {
    "stack": lambda rows: rows,
    "read": lambda rows, index: rows[index],
    "gather": lambda rows, indices: tf.gather(rows, indices),
    "size": lambda rows: tf.shape(rows)[0],
}
"""Methods of an array, as functions of the tensor that has its elements."""


def _reading(from_rows: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    def call(array: Any, *args: Any, name: str | None = None) -> Any:
        if array.flow.op.type == _STACKED:
            return from_rows(array.flow.op.inputs[0], *args)
        return method(array, *args, name=name)

    return call


def _array(array: tf.TensorArray) -> Passed | None:
    """The form in which an array is passed: its elements, or its size if it has none yet."""
    made_by, shape, is_growing = array.flow.op, array.element_shape, array.dynamic_size
    is_empty = made_by.type == _RESERVED
    if is_empty:
        tensor = made_by.inputs[1]
    elif made_by.type == _STACKED:
        tensor = made_by.inputs[0]
    elif shape.is_fully_defined() or _is_full(made_by):
        tensor = array.stack()
    else:
        return None

    def make(size: Any, element_shape: Any) -> tf.TensorArray:
        return tf.TensorArray(array.dtype, size, is_growing, element_shape=element_shape)

    def inside(given: tf.Tensor) -> tf.TensorArray:
        return make(given, shape) if is_empty else make(tf.shape(given)[0], shape).unstack(given)

    def outside(end: tf.Tensor) -> tf.TensorArray:
        element = end.shape[1:]
        if not is_empty and not is_growing:
            end = with_shape(end, tf.shape(tensor))
        elif not is_growing and element.is_fully_defined():
            end = with_shape(end, tf.concat([[tensor], element], 0))
        elif not end.shape.is_fully_defined():
            raise GraphError(
                "a step knows the shape of each tf.TensorArray that a loop fills. Got one of "
                f"{array.dtype.name} that is {end.shape} after the loop; give it a size and an "
                "element_shape, or write tf.vectorized_map for tf.map_fn."
            )
        return make(tf.shape(end)[0], element).unstack(end)

    return Passed(tensor, inside, outside)


def _is_full(written_by: tf.Operation) -> bool:
    """Whether every place of an array has been written."""
    count = 0
    while written_by.type == "TensorListSetItem":
        written_by, count = written_by.inputs[0].op, count + 1
    size = tf.get_static_value(written_by.inputs[1]) if written_by.type == _RESERVED else None
    return size is not None and count == size
