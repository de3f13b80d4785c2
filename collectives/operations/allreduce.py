"""allreduce: every rank gets the reduction of every rank's tensor.

Gradient, of the sum over ranks of their losses: with sum, y_i = Σ_j x_j, so that of x_j is the
allreduce of the gradients of all y_i. With max and min that goes to the ranks that attain the
extremum, in equal parts where several do, as TensorFlow's own reductions share it.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from collectives.errors import GradientError
from collectives.group import Group, world
from collectives.operations.emit import check_reduced, emit

__all__ = ["allreduce"]


def allreduce(
    tensor: tf.Tensor,
    group: Group | None = None,
    reducer: str = "sum",
    name: str | None = None,
) -> tf.Tensor:
    """The element-by-element reduction over the ranks of ``group`` (the world if None).

    Args:
        tensor: of the same shape and dtype on every rank: number or boolean.
        reducer: sum, max, min or prod; prod has no gradient.
        name: of the operation.

    Returns:
        A tensor of the same shape and dtype, equal on every rank of the group.

    Raises:
        ReducerError: if the reducer is unknown.
        DTypeError: if the elements do not reduce with it.
        GradientError: when the gradient of a product is built.
    """
    group = world() if group is None else group
    tensor = tf.convert_to_tensor(tensor)
    check_reduced(tensor, reducer)

    def forward(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        y = emit(
            f"allreduce {reducer}",
            x,
            group,
            lambda array: group.allreduce(array, reducer),
            x.shape,
            name,
        )
        return y, lambda upstream: _gradient(x, y, upstream, group, reducer)

    return tf.custom_gradient(forward)(tensor)


def _gradient(
    x: tf.Tensor, y: tf.Tensor, upstream: tf.Tensor, group: Group, reducer: str
) -> tf.Tensor:
    if reducer == "prod":
        raise GradientError(
            "an allreduce has a gradient with sum, max and min. Got prod: allreduce the sum of "
            "logarithms, or stop the gradient."
        )
    total = allreduce(upstream, group, "sum", name="allreduce_gradient")
    if reducer == "sum":
        return total
    attains = tf.equal(x, y)
    count = allreduce(tf.cast(attains, x.dtype), group, "sum", name="allreduce_gradient_count")
    return tf.where(attains, total / count, tf.zeros_like(total))
