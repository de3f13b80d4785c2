"""The world of a process that is one rank of several: its collectives, watched and timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from collectives import Group
from collectives.horovod.transport import horovod_transport
from collectives.native.mail import Mail
from collectives.native.transport import native_transport
from collectives.operations.calls import TensorTransport, Unwatched, Watch
from collectives.operations.hierarchy import LevelCall
from tensoropt.cost.hierarchy import large_ones
from tensoropt.cost.peak.fused_memory import fused_memory
from tensoropt.execution.world.guard import Guard
from tensoropt.execution.world.resharding.resharder import (
    GoesInHierarchy,
    bytes_of,
    shape_and_itemsize,
)
from tensoropt.execution.world.world import Array, World
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Step, StepTraffic, step_traffic

__all__ = ["Call", "MPIWorld", "Transport", "tensor_transport"]

Transport = Literal["mpi", "horovod", "host"]
"""How tensors get from process to process; see `MPIWorld`."""

_TRANSPORTS: dict[str, Callable[[Group], TensorTransport | None]] = {
    "mpi": native_transport,
    "horovod": horovod_transport,
    "host": lambda _: None,
}


def tensor_transport(transport: Transport, group: Group) -> TensorTransport | None:
    """Return what carries tensors in steps of a group; None for host calls alone.

    Every rank of the group calls.
    """
    return _TRANSPORTS[transport](group)


class Call(NamedTuple):
    """A run of one operator of a resharding on this rank.

    Attributes:
        started, ended: by `time.perf_counter`.
        moves: what it moved.
        worked: seconds of a processor that this rank's thread gave it, where they are known.
        record: describes the operator, in the same words on all ranks.
        beside: seconds of a processor that the network's thread gave it, while the rank computed.
    """

    started: float
    ended: float
    moves: tuple[StepTraffic, ...]
    worked: float | None = None
    record: str = ""
    beside: float = 0.0


class MPIWorld(World):
    """One rank per process. Every rank of the group makes one at the same point.

    Args:
        mesh: all devices.
        group: all ranks.
        first: see `World`.
        goes_in_hierarchy: see `GoesInHierarchy`; through Horovod nothing does.
        mail: what carries messages to other worlds, if anything.
        transport: "mpi" for collectives through MPI, within a machine by the operator in C++ where
            all ranks can have it, which they find out here; "horovod" through Horovod; "host" for
            host calls of MPI alone.

    Attributes:
        group, mail: see above.
        rank: of this process.
    """

    name = "mpi"

    def __init__(
        self,
        mesh: Mesh,
        group: Group,
        transport: Transport = "mpi",
        first: int = 0,
        goes_in_hierarchy: GoesInHierarchy = large_ones,
        mail: Mail | None = None,
    ) -> None:
        super().__init__(mesh, [group], first)
        self.group = group
        self.mail = mail
        self.rank = group.rank
        self._host_seconds = 0.0
        self._timeline: list[Call] | None = None
        self._guard: Guard | None = None
        self._transport = tensor_transport(transport, group)
        if transport != "horovod":
            self._goes_in_hierarchy = goes_in_hierarchy

    @property
    def waits_in_collectives(self) -> bool:
        """See `World.waits_in_collectives`."""
        waits = self.mail is not None and not self.mail.overlaps
        return waits or super().waits_in_collectives

    @property
    def network_seconds(self) -> float:
        """See `World.network_seconds`."""
        if self._transport is not None:
            self._transport.tell()
        native = 0.0 if self._transport is None else self._transport.seconds
        messages = 0.0 if self.mail is None else self.mail.seconds
        return self._host_seconds + native + messages

    @property
    def timeline(self) -> list[Call] | None:
        """Every collective of a resharding that has run, where it is a list; those in C++ are there
        once the timeline is set anew. Where machines have different numbers of ranks, the order
        differs between ranks: a rank's collectives within its machine come first."""
        return self._timeline

    @timeline.setter
    def timeline(self, timeline: list[Call] | None) -> None:
        self._watch_transport(timeline, self._guard)

    @property
    def guard(self) -> Guard | None:
        """The guard of a step in which a rank may fail, during such a step; else None."""
        return self._guard

    @guard.setter
    def guard(self, guard: Guard | None) -> None:
        self._watch_transport(self._timeline, guard)

    def _watch_transport(self, timeline: list[Call] | None, guard: Guard | None) -> None:
        """Set timeline and guard; what has run so far belongs to the timeline before."""
        if self._transport is not None:
            is_on = timeline is not None or guard is not None
            self._transport.watch(is_on, asks=guard is not None)
        self._timeline, self._guard = timeline, guard

    def share(self, values: Sequence[Array], axes: Sequence[int]) -> list[Array]:
        """See `World.share`: numbers in one message, and strings in one."""
        if not axes or not values:
            return list(values)
        if self.guard is not None:
            self.guard.enter(2 * sum(value.nbytes for value in values))
        (group,) = self.groups(axes)
        return _broadcast(group, values)

    def sends(self, axes: Sequence[int]) -> bool:
        """See `World.sends`: the first rank along the axes does."""
        return self.mesh.group(self.rank, axes)[0] == self.rank

    def gathered(self, rows: Array) -> Array:
        """See `World.gathered`: in one message."""
        (everyone,) = self._members
        return np.asarray(everyone.allgather(rows))

    def _watch(
        self, record: str, shape: tuple[Any, ...], itemsize: int, steps: Sequence[Step]
    ) -> Watch:
        return _Watched(self, record, tuple(steps), shape, itemsize)

    def _watch_of_part(self, record: str, shard: tf.Tensor, step: Step, part: LevelCall) -> Watch:
        if not part.kind:
            return Unwatched()
        inside = [axis for axis in step.axes if len(set(self.groups((axis,))[0].hosts)) == 1]
        axes = tuple(axis for axis in step.axes if (axis in inside) == part.is_within)
        shape, itemsize = shape_and_itemsize(shard)
        move = StepTraffic(part.kind, axes, bytes_of(shape, itemsize), "")
        return _Watched(self, record, (), shape, itemsize, (move,))

    def watch_of_messages(self) -> Watch:
        """See `World.watch_of_messages`."""
        return _WatchedMessages(self)


def _broadcast(group: Group, values: Sequence[Array]) -> list[Array]:
    """Values as the first rank of a group has them: numbers in one message, and strings in one."""
    shared = dict(enumerate(values))
    strings = [n for n, value in shared.items() if value.dtype == object]
    numbers = [n for n, value in shared.items() if value.dtype != object]
    if strings:
        texts = [[tf.compat.as_bytes(t).hex() for t in values[n].reshape(-1)] for n in strings]
        for n, first in zip(strings, group.allgather_object(texts)[0], strict=True):
            flat = np.empty(len(first), object)
            flat[:] = [bytes.fromhex(text) for text in first]
            shared[n] = flat.reshape(values[n].shape)
    if len(numbers) == 1:
        shared[numbers[0]] = np.asarray(group.broadcast(values[numbers[0]], root=0))
    elif numbers:
        joined = np.concatenate([values[n].reshape(-1).view(np.uint8) for n in numbers])
        message = np.asarray(group.broadcast(joined, root=0))
        ends = np.cumsum([values[n].nbytes for n in numbers])
        for n, part in zip(numbers, np.split(message, ends[:-1]), strict=True):
            # A copy, because TensorFlow needs aligned values.
            shared[n] = part.copy().view(values[n].dtype).reshape(values[n].shape)
    return [shared[n] for n in range(len(values))]


@dataclass(frozen=True, eq=False)
class _Watched:
    """An operator of a resharding in a world of processes: its record, its steps, or what a part of
    one moves, and what it is given."""

    world: MPIWorld
    record: str
    steps: tuple[Step, ...]
    shape: tuple[int | None, ...]
    itemsize: int
    part_moves: tuple[StepTraffic, ...] = ()

    @cached_property
    def moves(self) -> tuple[StepTraffic, ...]:
        """What the operator moves, computed once, as the step is being timed."""
        known = [1 if extent is None else extent for extent in self.shape]
        return self.part_moves or step_traffic(self.steps, self.world.mesh, known, self.itemsize)

    @cached_property
    def is_beside(self) -> bool:
        """Whether the network's threads do the work, while this rank computes."""
        transport = self.world._transport
        axes = [move.axes for move in self.moves if move.axes]
        groups = [group for each in axes for group in self.world.groups(each)]
        return transport is not None and any(map(transport.starts, groups))

    def before(self, shape: tuple[int, ...] | None) -> None:
        """See `Watch.before`."""
        world, needed = self.world, 0
        if world.guard is None:
            return
        if shape is not None and self.steps:
            memory = fused_memory(shape, self.itemsize, self.steps, world.mesh, world.rank)
            needed = memory.peak_bytes
        world.guard.enter(needed)

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        """See `Watch.after`."""
        self.world._host_seconds += ended - started
        if self.world.timeline is not None:
            own, beside = (None, worked or 0.0) if self.is_beside else (worked, 0.0)
            call = Call(started, ended, self.moves, own, self.record, beside)
            self.world.timeline.append(call)


@dataclass(frozen=True, slots=True, eq=False)
class _WatchedMessages:
    """Messages to and from other worlds: their time is the network's."""

    world: MPIWorld

    def before(self, shape: tuple[int, ...] | None) -> None:
        """Nothing."""

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        """See `Watch.after`."""
        del worked
        self.world._host_seconds += ended - started
