"""broadcast: every rank gets one rank's tensor.

Gradient, of the sum over ranks of their losses: every y_i is x_root, so that of x_root is the sum
of the gradients of all y_i, and that of any other x is zero.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from collectives.group import Group, world
from collectives.operations.allreduce import allreduce
from collectives.operations.emit import check_moved, emit

__all__ = ["broadcast"]


def broadcast(
    tensor: tf.Tensor,
    root: int = 0,
    group: Group | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """The tensor of the rank at position ``root`` of ``group`` (the world if None).

    Args:
        tensor: of the same shape and dtype on every rank; the values count on the root alone.
        root: a position in the group, not a world rank.
        name: of the operation.

    Returns:
        A tensor of the same shape and dtype, equal on every rank of the group.

    Raises:
        GroupError: if there is no such position.
        DTypeError: if the elements are strings or other objects.
    """
    group = world() if group is None else group
    tensor = tf.convert_to_tensor(tensor)
    check_moved(tensor)
    group.check_position(root)

    def forward(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        y = emit(
            f"broadcast root {root}",
            x,
            group,
            lambda array: group.broadcast(array, root),
            x.shape,
            name,
        )
        return y, lambda upstream: _gradient(upstream, root, group)

    return tf.custom_gradient(forward)(tensor)


def _gradient(upstream: tf.Tensor, root: int, group: Group) -> tf.Tensor:
    total = allreduce(upstream, group, "sum", name="broadcast_gradient")
    if group.rank == root:
        return total
    # The zeros wait for the sum: a rank whose graph ran without it would leave the others waiting.
    with tf.control_dependencies([total]):
        return tf.zeros_like(upstream)
