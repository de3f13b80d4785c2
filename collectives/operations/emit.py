"""What all TensorFlow operations have in common: a NumPy collective inside a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from collectives.buffers import Array, check_movable, dimension
from collectives.errors import ShapeError
from collectives.group import Group
from collectives.reduction import wire
from collectives.sequence import in_active_sequence

__all__ = ["check_moved", "check_reduced", "emit", "known_dimension", "resized"]


def emit(
    what: str,
    tensor: tf.Tensor,
    group: Group,
    compute: Callable[[Array], Array],
    shape: tf.TensorShape,
    name: str | None,
    *,
    alone_too: bool = False,
) -> tf.Tensor:
    """The operation that applies ``compute`` to the value of ``tensor`` when it runs.

    Args:
        what: the collective and its parameters, as ``allreduce sum``, for the record.
        compute: the collective on NumPy arrays.
        shape: of the result, as far as it is known.
        name: of the operation; the collective's if None.
        alone_too: whether a group of one computes, too; others give back what they got.
    """
    with tf.name_scope(name or what.split()[0]) as scope:

        def build() -> list[tf.Tensor]:
            if group.size == 1 and not alone_too:
                return [tf.identity(tensor)]
            result = tf.numpy_function(compute, [tensor], tensor.dtype, stateful=True)
            result.set_shape(shape)
            return [result]

        record = f"{what} {_signature(tensor)} ranks {group.label} as {scope.rstrip('/')}"
        return in_active_sequence(build, record)[0]


def _signature(tensor: tf.Tensor) -> str:
    if tensor.shape.rank is None:
        return f"{tensor.dtype.name}[...]"
    sizes = ("?" if size is None else str(size) for size in tensor.shape.as_list())
    return f"{tensor.dtype.name}[{','.join(sizes)}]"


def check_reduced(tensor: tf.Tensor, reducer: str) -> None:
    """Raises ReducerError or DTypeError if these elements do not reduce with it."""
    wire(_numpy_dtype(tensor), reducer)


def check_moved(tensor: tf.Tensor) -> None:
    """Raises DTypeError if these elements have no bytes to move."""
    check_movable(_numpy_dtype(tensor))


def _numpy_dtype(tensor: tf.Tensor) -> np.dtype[Any]:
    return np.dtype(tensor.dtype.as_numpy_dtype)


def known_dimension(tensor: tf.Tensor, dim: int) -> int:
    """``dim`` counted from the front where the number of dimensions is known, else as it came."""
    return dim if tensor.shape.rank is None else dimension(dim, tensor.shape.rank)


def resized(shape: tf.TensorShape, dim: int, multiply: int = 1, divide: int = 1) -> tf.TensorShape:
    """The static shape with one size multiplied or divided.

    Raises:
        ShapeError: if a known size does not divide.
    """
    if shape.rank is None or shape.as_list()[dim] is None:
        return shape
    sizes = shape.as_list()
    if sizes[dim] % divide:
        raise ShapeError(
            "a dimension that a collective splits divides by the size of the group. Got size "
            f"{sizes[dim]} of dimension {dim} for {divide} ranks: pad it."
        )
    sizes[dim] = sizes[dim] * multiply // divide
    return tf.TensorShape(sizes)
