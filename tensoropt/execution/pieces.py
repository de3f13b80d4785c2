"""One resharding step on pieces: all ranks' tensors, one rank's tensor, one rank's array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from collectives import Group
from tensoropt.execution.constants import shared_constant
from tensoropt.execution.halos import exchanged
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Exchange, ReshardStep, Step

__all__ = ["apply_to_array", "apply_to_piece", "apply_to_pieces", "reduce_pieces"]

_NEUTRAL = {"sum": 0, "prod": 1}


def reduce_pieces(pieces: Sequence[tf.Tensor], reducer: str) -> tf.Tensor:
    """The reduction of tensors of one shape, in a fixed order."""
    total = pieces[0]
    if total.dtype.is_bool:
        combine = tf.logical_or if reducer in ("sum", "max") else tf.logical_and
    else:
        combine = {"sum": tf.add, "max": tf.maximum, "min": tf.minimum, "prod": tf.multiply}[
            reducer
        ]
    for piece in pieces[1:]:
        total = combine(total, piece)
    return total


def apply_to_pieces(pieces: Sequence[tf.Tensor], step: Step, mesh: Mesh) -> list[tf.Tensor]:
    """A step over the tensors of all ranks of a mesh, as plain TensorFlow."""
    if step.is_local:
        return [apply_to_piece(piece, step, mesh, rank) for rank, piece in enumerate(pieces)]
    moved: list[tf.Tensor] = list(pieces)
    for group in mesh.partition(step.axes):
        members = [pieces[rank] for rank in group]
        for rank, piece in zip(group, _collective(members, step), strict=True):
            moved[rank] = piece
    return moved


def _collective(members: list[tf.Tensor], step: Step) -> list[tf.Tensor]:
    size = len(members)
    if isinstance(step, Exchange):
        pieces = dict(enumerate(members))
        return [exchanged(pieces, place, step) for place in range(size)]
    if step.kind == "allgather":
        return [tf.concat(members, _axis(step.from_dim))] * size
    if step.kind == "allreduce":
        return [reduce_pieces(members, _reducer(step))] * size
    if step.kind == "reduce_scatter":
        return list(tf.split(reduce_pieces(members, _reducer(step)), size, _axis(step.to_dim)))
    if step.kind == "alltoall":
        parts = [tf.split(member, size, _axis(step.to_dim)) for member in members]
        return [tf.concat([part[k] for part in parts], _axis(step.from_dim)) for k in range(size)]
    raise AssertionError(f"unknown step {step}")


def apply_to_piece(piece: tf.Tensor, step: Step, mesh: Mesh, rank: int) -> tf.Tensor:
    """A local step (slice, mask, or windows inside the pieces) on one rank's tensor."""
    index = mesh.piece(rank, step.axes)
    if isinstance(step, Exchange):
        return exchanged({index: piece}, index, step)
    if step.kind == "slice":
        dim = _dim(step.to_dim)
        shape = [-1 if extent is None else extent for extent in piece.shape.as_list()]  # -1: all
        shape[dim] //= mesh.pieces(step.axes)
        begin = [0] * len(shape)
        begin[dim] = index * shape[dim]
        return tf.slice(piece, shared_constant(begin), shared_constant(shape))
    if index == 0 or step.reducer not in _NEUTRAL:
        return tf.identity(piece)
    neutral = tf.zeros_like if step.reducer == "sum" else tf.ones_like
    return neutral(piece)


def apply_to_array(
    array: np.ndarray[Any, Any], step: Step, mesh: Mesh, rank: int, group: Group | None
) -> np.ndarray[Any, Any]:
    """A step on one rank's array; ``group`` are the ranks it communicates with."""
    if isinstance(step, Exchange):
        assert group is not None, "windows are those of a group, even where they do not cross"
        if step.back:
            return group.exchange_sum(array, step.dim, step.starts, step.extent)
        return group.exchange(array, step.dim, step.starts, step.length, step.fill)
    if group is not None:
        if step.kind == "allgather":
            return group.allgather(array, dim=_dim(step.from_dim))
        if step.kind == "allreduce":
            return group.allreduce(array, reducer=_reducer(step))
        if step.kind == "reduce_scatter":
            return group.reduce_scatter(array, dim=_dim(step.to_dim), reducer=_reducer(step))
        if step.kind == "alltoall":
            return group.alltoall(
                array, split_dim=_dim(step.to_dim), concat_dim=_dim(step.from_dim)
            )
    index = mesh.piece(rank, step.axes)
    if step.kind == "slice":
        dim = _dim(step.to_dim)
        extent = array.shape[dim] // mesh.pieces(step.axes)
        region = [slice(None)] * array.ndim
        region[dim] = slice(index * extent, (index + 1) * extent)
        return array[tuple(region)]
    if index == 0 or step.reducer not in _NEUTRAL:
        return array
    return np.full_like(array, _NEUTRAL[step.reducer])


def _axis(dim: int | None) -> tf.Tensor:
    return shared_constant(_dim(dim))


def _dim(dim: int | None) -> int:
    assert dim is not None, "the planner gives every such step its dimension"
    return dim


def _reducer(step: ReshardStep) -> str:
    assert step.reducer is not None, "the planner gives every such step its reducer"
    return step.reducer
