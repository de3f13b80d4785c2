"""A world: the ranks that this process emits, and how pieces move between them."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from collectives import Group
from collectives.sequence import in_active_sequence
from tensoropt.execution.guard import Guard
from tensoropt.execution.pieces import (
    apply_to_array,
    apply_to_piece,
    apply_to_pieces,
)
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Exchange, Move, Step, moves, shape_after

__all__ = ["Call", "MPIWorld", "SingleProcessWorld", "World"]


class Call(NamedTuple):
    """One resharding as it ran on this rank.

    Attributes:
        started, ended: by `time.perf_counter`.
        moves: what it moved.
    """

    started: float
    ended: float
    moves: tuple[Move, ...]


class World(Protocol):
    """The ranks that one process emits.

    Attributes:
        name: "mpi" or "single-process".
        mesh: all devices.
        ranks: those that this process emits; pieces of a tensor come in this order.
        network_seconds: time spent in collectives so far.
    """

    name: str
    mesh: Mesh
    ranks: tuple[int, ...]
    network_seconds: float

    def reshard(
        self, pieces: Sequence[tf.Tensor], steps: Sequence[Step], label: str
    ) -> list[tf.Tensor]:
        """Take one tensor's pieces from one layout to another."""
        ...

    def share(self, value: np.ndarray[Any, Any], axes: Sequence[int]) -> np.ndarray[Any, Any]:
        """A fed value as the first rank along ``axes`` has it (outside the graph)."""
        ...


class SingleProcessWorld:
    """All N ranks in one graph; a collective is plain TensorFlow over their pieces."""

    name = "single-process"

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.ranks = tuple(range(mesh.size))
        self.network_seconds = 0.0

    def reshard(
        self, pieces: Sequence[tf.Tensor], steps: Sequence[Step], label: str
    ) -> list[tf.Tensor]:
        """See `World.reshard`."""
        moved = list(pieces)
        with tf.name_scope(label):
            for step in steps:
                moved = apply_to_pieces(moved, step, self.mesh)
        return moved

    def share(self, value: np.ndarray[Any, Any], axes: Sequence[int]) -> np.ndarray[Any, Any]:
        """See `World.share`: one process has one value."""
        del axes
        return value


class MPIWorld:
    """One rank per process; a resharding that communicates is one fused operation.

    Attributes:
        network_seconds: time spent in resharding so far, waiting for other ranks included.
        timeline: every resharding that communicates, as it ran, where it is a list.
        guard: of a step in which a rank may fail, while there is such a step.
    """

    name = "mpi"

    def __init__(self, mesh: Mesh, group: Group) -> None:
        self.mesh = mesh
        self._group = group
        self.rank = group.rank
        self.ranks: tuple[int, ...] = (group.rank,)
        self.network_seconds = 0.0
        self.timeline: list[Call] | None = None
        self.guard: Guard | None = None

    def group(self, axes: Sequence[int]) -> Group:
        """The ranks that differ from this one along ``axes`` only, in the order of the pieces."""
        members = self.mesh.group(self.rank, axes)
        return self._group.subgroup([self._group.ranks[member] for member in members])

    def reshard(
        self, pieces: Sequence[tf.Tensor], steps: Sequence[Step], label: str
    ) -> list[tf.Tensor]:
        """See `World.reshard`. Steps before and after communication run inside the same
        operation, which keeps no piece longer than the step that reads it."""
        (piece,) = pieces
        if all(step.is_local for step in steps):
            for step in steps:
                piece = apply_to_piece(piece, step, self.mesh, self.rank)
            return [piece]
        groups = [
            self.group(step.axes) if isinstance(step, Exchange) or not step.is_local else None
            for step in steps
        ]
        steps = tuple(steps)
        known = [1 if extent is None else extent for extent in piece.shape.as_list()]
        moved = moves(steps, self.mesh, known, piece.dtype.size)

        def fused(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            if self.guard is not None:
                self.guard.enter(self._buffer_bytes(array.nbytes, steps))
            started = perf_counter()
            for step, group in zip(steps, groups, strict=True):
                array = apply_to_array(array, step, self.mesh, self.rank, group)
            ended = perf_counter()
            self.network_seconds += ended - started
            if self.timeline is not None:
                self.timeline.append(Call(started, ended, moved))
            return np.asarray(array, order="C")  # ascontiguousarray makes a scalar a vector

        def build() -> list[tf.Tensor]:
            result = tf.numpy_function(fused, [piece], piece.dtype, name="reshard")
            result.set_shape(self._shape_after(piece, steps))
            return [result]

        record = f"{label}: {piece.dtype.name}{piece.shape.as_list()} " + " ".join(
            f"{step}" for step in steps
        )
        return list(in_active_sequence(build, record))

    def _buffer_bytes(self, piece_bytes: int, steps: Sequence[Step]) -> int:
        """At most what steps hold at once: what a step sends and what it receives."""
        most = size = piece_bytes
        for step in steps:
            if isinstance(step, Exchange):
                continue  # a halo is small beside its piece
            pieces = self.mesh.pieces(step.axes)
            size *= pieces if step.from_dim is not None else 1
            size //= pieces if step.to_dim is not None else 1
            most = max(most, size)
        return 2 * most

    def _shape_after(self, piece: tf.Tensor, steps: Sequence[Step]) -> tuple[int, ...]:
        shape = tuple(piece.shape.as_list())
        for step in steps:
            shape = shape_after(step, self.mesh, shape)
        return shape

    def share(self, value: np.ndarray[Any, Any], axes: Sequence[int]) -> np.ndarray[Any, Any]:
        """See `World.share`."""
        if not axes:
            return value
        if self.guard is not None:
            self.guard.enter(2 * value.nbytes)
        if value.dtype == object:  # strings
            texts = [tf.compat.as_bytes(text) for text in value.reshape(-1)]
            first = self.group(axes).allgather_object([text.hex() for text in texts])[0]
            shared = np.empty(len(first), object)
            shared[:] = [bytes.fromhex(text) for text in first]
            return shared.reshape(value.shape)
        return np.asarray(self.group(axes).broadcast(value, root=0))
