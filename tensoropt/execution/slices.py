"""Sparse gradients across ranks: rows are collected, never spread out into a dense tensor.

A gather that is split along its indices gives each rank the rows of its own; the gradient, their
sum, is all rows together. Where it is split along the rows themselves, those are put together.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tensoropt.execution.world import World
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep

__all__ = ["collect_slices"]


def collect_slices(
    world: World, slices: Sequence[tf.IndexedSlices], layout: Layout, label: str
) -> list[tf.IndexedSlices] | None:
    """The whole sparse gradient on every rank.

    Args:
        world: the ranks emitted here.
        slices: the gradient on each of them.
        layout: the gradient's, as if it were dense: partial over the axes that split the indices.
        label: names the operations.

    Returns:
        None where rows are split between ranks, are not summed, or their number is unknown: only
        a dense gradient can then be moved.
    """
    values = [piece.values for piece in slices]
    indices = [piece.indices for piece in slices]
    unknown = None in values[0].shape.as_list() + indices[0].shape.as_list()
    if unknown or layout.dims[0] or (layout.partial and layout.reducer != "sum"):
        return None
    for dim, axes in enumerate(layout.dims):
        if axes:
            values = _allgather(world, values, dim, axes, f"{label}/rows")
    if layout.partial:
        values = _allgather(world, values, 0, layout.partial, f"{label}/values")
        indices = _allgather(world, indices, 0, layout.partial, f"{label}/indices")
    return [
        tf.IndexedSlices(value, index, piece.dense_shape)
        for value, index, piece in zip(values, indices, slices, strict=True)
    ]


def _allgather(
    world: World, pieces: Sequence[tf.Tensor], dim: int, axes: tuple[int, ...], label: str
) -> list[tf.Tensor]:
    whole = Layout.replicated(len(pieces[0].shape))
    source = Layout(tuple(axes if d == dim else () for d in range(len(whole.dims))))
    step = ReshardStep("allgather", axes, source, whole, from_dim=dim)
    return world.reshard(pieces, (step,), label)
