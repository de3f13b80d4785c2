"""exchange: every rank gets a window of the whole: its piece and what lies beside it, the halo.

Gradient, of the sum over ranks of their losses: y_i is a window of all pieces, so that of x_j is
the sum over i of what the gradient of y_i has of piece j: halos go back to their owners, which
add them. `exchange_sum` is that, and its gradient is an exchange again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from collectives.errors import ShapeError
from collectives.group import Group, world
from collectives.operations.emit import check_moved, check_reduced, emit, known_dimension
from collectives.windows import Windows

__all__ = ["exchange", "exchange_sum"]


def exchange(
    tensor: tf.Tensor,
    dim: int,
    starts: Sequence[int],
    length: int,
    group: Group | None = None,
    fill: float = 0,
    name: str | None = None,
) -> tf.Tensor:
    """This rank's window of the tensors of ``group`` (the world if None), joined along ``dim``.

    A halo of ``before`` and ``after`` elements around pieces of n is ``starts=[i * n - before
    for i in range(group.size)]`` and ``length=before + n + after``; it may be larger than a piece.

    Args:
        tensor: of the same shape and dtype on every rank; its size in ``dim`` is known.
        dim: the dimension along which the tensors make the whole; negative counts from the end.
        starts: per position in the group its window's first element, counted from the whole's
            first. The same on every rank.
        length: of every window. The same on every rank.
        fill: what a window has beyond the ends of the whole.
        name: of the operation.

    Returns:
        A tensor whose size in ``dim`` is ``length``.

    Raises:
        ShapeError: if there is no such dimension, its size is not known, or there is not one
            start per rank.
        DTypeError: if the elements are strings or other objects.
    """
    group = world() if group is None else group
    tensor = tf.convert_to_tensor(tensor)
    check_moved(tensor)
    axis, extent = _known_size(tensor, dim)
    windows = Windows.of_group(starts, length, extent, group.size)

    def forward(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        y = emit(
            f"exchange dim {axis} {_words(windows)}",
            x,
            group,
            lambda array: group.exchange(array, axis, windows.starts, windows.length, fill),
            _with_size(x.shape, axis, windows.length),
            name,
            alone_too=True,
        )
        return y, lambda upstream: exchange_sum(
            upstream, axis, windows.starts, extent, group, name="exchange_gradient"
        )

    return tf.custom_gradient(forward)(tensor)


def exchange_sum(
    tensor: tf.Tensor,
    dim: int,
    starts: Sequence[int],
    extent: int,
    group: Group | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """This rank's piece of the sum of all ranks' windows, each laid where it starts.

    Args:
        tensor: this rank's window, of the same shape and dtype on every rank.
        dim: the dimension of the windows; its size is known.
        starts: see `exchange`. What lies beyond the ends of the whole is dropped.
        extent: of every piece along ``dim``.
        group: see `exchange`.
        name: of the operation.

    Returns:
        A tensor whose size in ``dim`` is ``extent``.

    Raises:
        ShapeError: see `exchange`.
        DTypeError: if the elements do not add up.
    """
    group = world() if group is None else group
    tensor = tf.convert_to_tensor(tensor)
    check_reduced(tensor, "sum")
    axis, length = _known_size(tensor, dim)
    windows = Windows.of_group(starts, length, extent, group.size)

    def forward(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        y = emit(
            f"exchange_sum dim {axis} {_words(windows)}",
            x,
            group,
            lambda array: group.exchange_sum(array, axis, windows.starts, windows.extent),
            _with_size(x.shape, axis, windows.extent),
            name,
            alone_too=True,
        )
        return y, lambda upstream: exchange(
            upstream, axis, windows.starts, length, group, name="exchange_sum_gradient"
        )

    return tf.custom_gradient(forward)(tensor)


def _known_size(tensor: tf.Tensor, dim: int) -> tuple[int, int]:
    """The dimension counted from the front, and its size."""
    size = None
    if tensor.shape.rank is not None:
        dim = known_dimension(tensor, dim)
        size = tensor.shape.as_list()[dim]
    if size is None:
        raise ShapeError(
            "windows are places in a dimension of known size. Got dimension "
            f"{dim} of a tensor of shape {tensor.shape}: set its shape."
        )
    return dim, size


def _with_size(shape: tf.TensorShape, dim: int, size: int) -> tf.TensorShape:
    sizes = shape.as_list()
    sizes[dim] = size
    return tf.TensorShape(sizes)


def _words(windows: Windows) -> str:
    starts = ",".join(map(str, windows.starts))
    return f"pieces of {windows.extent} windows of {windows.length} at {starts}"
