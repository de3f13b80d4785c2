"""Windows of pieces, and their way back, as plain TensorFlow: an exchange inside one graph."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from collectives.windows import Windows
from tensoropt.execution.constants import shared_constant
from tensoropt.parallel.resharding import Exchange

__all__ = ["exchanged", "padded", "part"]


def exchanged(members: Mapping[int, tf.Tensor], place: int, step: Exchange) -> tf.Tensor:
    """What one place of a group gets of an exchange.

    Args:
        members: by place in the group the tensors before; those that no element comes from may
            be left out.
        place: of the one that gets it.
        step: the exchange.
    """
    windows = Windows(step.starts, step.length, step.extent)
    return (
        _piece(members, place, step, windows)
        if step.back
        else _window(members, place, step, windows)
    )


def _window(
    members: Mapping[int, tf.Tensor], place: int, step: Exchange, windows: Windows
) -> tf.Tensor:
    parts = [
        part(piece, step.dim, windows.in_piece(place, number))
        for number, piece in members.items()
        if windows.overlap(place, number)
    ]
    if not parts:
        parts = [part(members[place], step.dim, slice(0, 0))]
    joined = parts[0] if len(parts) == 1 else tf.concat(parts, shared_constant(step.dim))
    before, _ = windows.outside(place)
    return padded(joined, step.dim, before, step.length, step.fill)


def _piece(
    members: Mapping[int, tf.Tensor], place: int, step: Exchange, windows: Windows
) -> tf.Tensor:
    shares = []
    for number, window in members.items():
        if windows.overlap(number, place):
            share = part(window, step.dim, windows.in_window(number, place))
            at = windows.in_piece(number, place).start
            shares.append(padded(share, step.dim, at, step.extent))
    if not shares:
        nothing = part(members[place], step.dim, slice(0, 0))
        return padded(nothing, step.dim, 0, step.extent)
    return shares[0] if len(shares) == 1 else tf.add_n(shares)


def part(tensor: tf.Tensor, dim: int, elements: slice) -> tf.Tensor:
    """Some elements along a dimension; the tensor itself where these are all."""
    if elements == slice(0, tensor.shape.as_list()[dim]):
        return tensor
    begin, size = [0] * tensor.shape.rank, [-1] * tensor.shape.rank  # -1: all
    begin[dim], size[dim] = elements.start, elements.stop - elements.start
    return tf.slice(tensor, shared_constant(begin), shared_constant(size))


def padded(tensor: tf.Tensor, dim: int, before: int, size: int, fill: float = 0) -> tf.Tensor:
    """The tensor after ``before`` more elements, and before as many as make it ``size``."""
    after = size - before - tensor.shape.as_list()[dim]
    if not before and not after:
        return tensor
    paddings = [[0, 0]] * tensor.shape.rank
    paddings[dim] = [before, after]
    return tf.pad(tensor, paddings, constant_values=tf.constant(fill, tensor.dtype))
