"""reduce_scatter: every rank gets its piece of the reduction of every rank's tensor.

Gradient, of the sum over ranks of their losses: with sum, y_i is piece i of Σ_j x_j, so that of
piece i of every x_j is the gradient of y_i: an allgather.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

import collectives.operations.allgather as adjoint
from collectives.errors import GradientError
from collectives.group import Group, world
from collectives.operations.emit import check_reduced, emit, known_dimension, resized

__all__ = ["reduce_scatter"]


def reduce_scatter(
    tensor: tf.Tensor,
    dim: int = 0,
    group: Group | None = None,
    reducer: str = "sum",
    name: str | None = None,
) -> tf.Tensor:
    """This rank's piece, along ``dim``, of the reduction over ``group`` (the world if None).

    Args:
        tensor: of the same shape and dtype on every rank: number or boolean.
        dim: the dimension that is split; negative counts from the end.
        reducer: sum, max, min or prod; only sum has a gradient.
        name: of the operation.

    Returns:
        A tensor whose size in ``dim`` is that of ``tensor`` divided by the group's size. Piece i
        goes to position i of the group.

    Raises:
        ShapeError: if there is no such dimension, or it does not divide by the group's size.
        ReducerError: if the reducer is unknown.
        DTypeError: if the elements do not reduce with it.
        GradientError: when the gradient with another reducer than sum is built.
    """
    group = world() if group is None else group
    tensor = tf.convert_to_tensor(tensor)
    check_reduced(tensor, reducer)
    axis = known_dimension(tensor, dim)
    shape = resized(tensor.shape, axis, divide=group.size)

    def forward(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        y = emit(
            f"reduce_scatter {reducer} dim {axis}",
            x,
            group,
            lambda array: group.reduce_scatter(array, axis, reducer),
            shape,
            name,
        )
        return y, lambda upstream: _gradient(upstream, axis, group, reducer)

    return tf.custom_gradient(forward)(tensor)


def _gradient(upstream: tf.Tensor, dim: int, group: Group, reducer: str) -> tf.Tensor:
    if reducer != "sum":
        raise GradientError(
            f"a reduce_scatter has a gradient with sum only. Got {reducer}: allreduce with max "
            "or min and take a slice, or stop the gradient."
        )
    return adjoint.allgather(upstream, dim, group, name="reduce_scatter_gradient")
