"""A world: the ranks that this process emits, and how shards move between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from collectives import Group
from collectives.operations.stages import CollectiveStage, LocalStage, Place, Stage, on_tensors
from collectives.transport.in_process import InProcessTransport
from tensoropt.cost.fused_memory import fused_memory
from tensoropt.execution.guard import Guard
from tensoropt.execution.operations import collective, local
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Move, Step, moves, shape_after

__all__ = ["Call", "MPIWorld", "SingleProcessWorld", "World"]

Arrays = Sequence[np.ndarray[Any, Any]]


class Call(NamedTuple):
    """One resharding as it ran on this rank.

    Attributes:
        started, ended: by `time.perf_counter`.
        moves: what it moved.
    """

    started: float
    ended: float
    moves: tuple[Move, ...]


class World:
    """The ranks that one process emits, of those that a plan is for.

    Args:
        mesh: all devices.
        members: per rank that this process emits the group of all ranks, as it sees it.

    Attributes:
        name: "mpi" or "single-process".
        ranks: those that this process emits; the shards of a tensor come in this order.
        network_seconds: time spent in collectives between processes so far.
    """

    name = ""

    def __init__(self, mesh: Mesh, members: Sequence[Group]) -> None:
        self.mesh = mesh
        self.ranks = tuple(group.rank for group in members)
        self.network_seconds = 0.0
        self._members = tuple(members)

    def reshard(
        self, shards: Sequence[tf.Tensor], steps: Sequence[Step], label: str
    ) -> list[tf.Tensor]:
        """Take one tensor's shards from one layout to another, in at most one host call.

        Args:
            shards: one on each rank emitted here.
            steps: what is done to them, in order.
            label: names the resharding where ranks compare their collectives.
        """
        first = shards[0]
        shape = tuple(first.shape.as_list())
        record = f"{label}: {first.dtype.name}{list(shape)} " + " ".join(map(str, steps))
        if not all(step.is_local for step in steps):
            for step in steps:
                shape = shape_after(step, self.mesh, shape)
        stages = [self._stage(step) for step in steps]
        return on_tensors(shards, stages, shape, record, self._watched(first, steps))

    def share(self, value: np.ndarray[Any, Any], axes: Sequence[int]) -> np.ndarray[Any, Any]:
        """A fed value as the first rank along ``axes`` has it (outside the graph)."""
        del axes  # one process has one value
        return value

    def groups(self, axes: Sequence[int]) -> tuple[Group, ...]:
        """Per rank emitted here those that differ from it along ``axes`` only, in shard order."""
        found = []
        for member in self._members:
            ranks = self.mesh.group(member.rank, axes)
            found.append(member.subgroup([member.ranks[rank] for rank in ranks]))
        return tuple(found)

    def _stage(self, step: Step) -> Stage:
        if not step.is_local:
            return CollectiveStage(collective(step), self.groups(step.axes))
        size = self.mesh.pieces(step.axes)
        places = tuple(Place(self.mesh.piece(rank, step.axes), size) for rank in self.ranks)
        return LocalStage(local(step), places)

    def _watched(
        self, shard: tf.Tensor, steps: Sequence[Step]
    ) -> Callable[[Arrays], AbstractContextManager[Any]]:
        """What surrounds a resharding's host call when it runs."""
        del shard, steps
        return nullcontext


class SingleProcessWorld(World):
    """All N ranks in one graph."""

    name = "single-process"

    def __init__(self, mesh: Mesh) -> None:
        super().__init__(mesh, [Group(each) for each in InProcessTransport.all_of(mesh.size)])


class MPIWorld(World):
    """One rank per process.

    Attributes:
        rank: of this process.
        network_seconds: time spent in resharding so far, waiting for other ranks included.
        timeline: every resharding that communicates, as it ran, where it is a list.
        guard: of a step in which a rank may fail, while there is such a step.
    """

    name = "mpi"

    def __init__(self, mesh: Mesh, group: Group) -> None:
        super().__init__(mesh, [group])
        self.rank = group.rank
        self.timeline: list[Call] | None = None
        self.guard: Guard | None = None

    def share(self, value: np.ndarray[Any, Any], axes: Sequence[int]) -> np.ndarray[Any, Any]:
        """See `World.share`."""
        if not axes:
            return value
        if self.guard is not None:
            self.guard.enter(2 * value.nbytes)
        (group,) = self.groups(axes)
        if value.dtype == object:  # strings
            texts = [tf.compat.as_bytes(text) for text in value.reshape(-1)]
            first = group.allgather_object([text.hex() for text in texts])[0]
            shared = np.empty(len(first), object)
            shared[:] = [bytes.fromhex(text) for text in first]
            return shared.reshape(value.shape)
        return np.asarray(group.broadcast(value, root=0))

    def _watched(
        self, shard: tf.Tensor, steps: Sequence[Step]
    ) -> Callable[[Arrays], AbstractContextManager[Any]]:
        known = [1 if extent is None else extent for extent in shard.shape.as_list()]
        moved = moves(steps, self.mesh, known, shard.dtype.size)

        @contextmanager
        def watched(arrays: Arrays) -> Iterator[None]:
            (array,) = arrays
            if self.guard is not None:
                memory = fused_memory(array.shape, array.itemsize, steps, self.mesh, self.rank)
                self.guard.enter(memory.peak_bytes)
            started = perf_counter()
            yield
            ended = perf_counter()
            self.network_seconds += ended - started
            if self.timeline is not None:
                self.timeline.append(Call(started, ended, moved))

        return watched
