"""alltoall: every rank gets its piece of every rank's tensor, concatenated.

Gradient, of the sum over ranks of their losses: every element goes from one rank to one other, so
its gradient comes back the same way: an alltoall with the dimensions swapped.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from collectives.group import Group, world
from collectives.operations.emit import check_moved, emit, known_dimension, resized

__all__ = ["alltoall"]


def alltoall(
    tensor: tf.Tensor,
    split_dim: int,
    concat_dim: int,
    group: Group | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """The pieces along ``split_dim`` that are this rank's, joined along ``concat_dim``.

    Args:
        tensor: of the same shape and dtype on every rank of ``group`` (the world if None).
        split_dim: piece i along it goes to position i of the group; negative counts from the end.
        concat_dim: the pieces received are concatenated along it in the group's order.
        name: of the operation.

    Returns:
        A tensor whose size is divided by the group's size in ``split_dim``, then multiplied by it
        in ``concat_dim``.

    Raises:
        ShapeError: if there is no such dimension, or ``split_dim`` does not divide.
        DTypeError: if the elements are strings or other objects.
    """
    group = world() if group is None else group
    tensor = tf.convert_to_tensor(tensor)
    check_moved(tensor)
    source = known_dimension(tensor, split_dim)
    target = known_dimension(tensor, concat_dim)
    shape = resized(resized(tensor.shape, source, divide=group.size), target, multiply=group.size)

    def forward(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        y = emit(
            f"alltoall split {source} concat {target}",
            x,
            group,
            lambda array: group.alltoall(array, source, target),
            shape,
            name,
        )
        return y, lambda upstream: alltoall(
            upstream, target, source, group, name="alltoall_gradient"
        )

    return tf.custom_gradient(forward)(tensor)
