"""allgather: every rank gets every rank's tensor, concatenated.

Gradient, of the sum over ranks of their losses: y_i is all x_j, so that of x_j is the sum over i
of piece j of the gradients of y_i: a reduce_scatter.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

import collectives.operations.reduce_scatter as adjoint
from collectives.group import Group, world
from collectives.operations.emit import check_moved, emit, known_dimension, resized

__all__ = ["allgather"]


def allgather(
    tensor: tf.Tensor,
    dim: int = 0,
    group: Group | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """The tensors of the ranks of ``group`` (the world if None), in its order, along ``dim``.

    Args:
        tensor: of the same shape and dtype on every rank.
        dim: the dimension to concatenate along; negative counts from the end.
        name: of the operation.

    Returns:
        A tensor whose size in ``dim`` is the group's size times that of ``tensor``, equal on
        every rank of the group.

    Raises:
        ShapeError: if there is no such dimension.
        DTypeError: if the elements are strings or other objects.
    """
    group = world() if group is None else group
    tensor = tf.convert_to_tensor(tensor)
    check_moved(tensor)
    axis = known_dimension(tensor, dim)
    shape = resized(tensor.shape, axis, multiply=group.size)

    def forward(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        y = emit(
            f"allgather dim {axis}",
            x,
            group,
            lambda array: group.allgather(array, axis),
            shape,
            name,
        )
        return y, lambda upstream: adjoint.reduce_scatter(
            upstream, axis, group, name="allgather_gradient"
        )

    return tf.custom_gradient(forward)(tensor)
