"""A world: the ranks that this process emits, and how shards move between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from collectives import Group
from collectives.horovod.transport import horovod_transport
from collectives.native.mail import Mail
from collectives.native.transport import NativeTransport, native_transport
from collectives.operations.calls import (
    CollectiveCall,
    LocalCall,
    OperationCall,
    Position,
    TensorTransport,
    Unwatched,
    Watch,
    on_joined_tensors,
    on_tensors,
)
from collectives.operations.hierarchy import LevelCall, in_hierarchy
from collectives.transport.in_process import InProcessTransport
from tensoropt.cost.hierarchy import large_ones
from tensoropt.cost.peak.fused_memory import fused_memory
from tensoropt.execution.world.guard import Guard
from tensoropt.execution.world.operations import collective, local
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import (
    Exchange,
    ReshardStep,
    Step,
    StepTraffic,
    shape_after,
    step_traffic,
)

__all__ = ["Call", "GoesInHierarchy", "MPIWorld", "SingleProcessWorld", "Transport", "World"]

Transport = Literal["mpi", "horovod", "host"]
"""How tensors get from process to process; see `MPIWorld`."""

_TRANSPORTS: dict[str, Callable[[Group], TensorTransport | None]] = {
    "mpi": native_transport,
    "horovod": horovod_transport,
    "host": lambda _: None,
}

GoesInHierarchy = Callable[[str, tuple[int, ...], int], bool]
"""Whether a collective goes within machines and across them, by its kind, mesh axes and the bytes
that a rank holds before; the same on every rank."""

Array = np.ndarray[Any, Any]


class Call(NamedTuple):
    """A run of one operator of a resharding on this rank.

    Attributes:
        started, ended: by `time.perf_counter`.
        moves: what it moved.
        worked: seconds of a processor that it had, where that is known.
    """

    started: float
    ended: float
    moves: tuple[StepTraffic, ...]
    worked: float | None = None


class World:
    """The ranks that one process emits, of those that a plan is for.

    Args:
        mesh: all devices.
        members: per rank that this process emits the group of all ranks, as it sees it.
        first: see there.

    Attributes:
        name: "mpi" or "single-process".
        first: number of its first rank among all of a job, where it is a pipeline stage's.
        ranks: those that this process emits; the shards of a tensor come in this order.
    """

    name = ""

    def __init__(self, mesh: Mesh, members: Sequence[Group], first: int = 0) -> None:
        self.mesh = mesh
        self.first = first
        self.ranks = tuple(group.rank for group in members)
        self._transport: TensorTransport | None = None
        self._goes_in_hierarchy: GoesInHierarchy = large_ones
        self._members = tuple(members)
        self._spans_machines = any(len(set(member.hosts)) > 1 for member in members)

    @property
    def is_stateful(self) -> bool:
        """Whether TensorFlow knows how collectives may be changed; see `TensorTransport`."""
        return self._transport is None or self._transport.is_stateful

    @property
    def is_first_of_machine(self) -> bool:
        """Whether the first rank of a machine is here, which says what holds for all there."""
        return any(member.local_rank() == 0 for member in self._members)

    @property
    def guard(self) -> Guard | None:
        """The guard of a step in which a rank may fail, during such a step; else None."""
        return None

    @property
    def overlaps(self) -> bool:
        """Whether ranks compute while their collectives run; see `TensorTransport`."""
        return self._transport is not None and self._transport.overlaps

    @property
    def waits_in_collectives(self) -> bool:
        """Whether a rank computes nothing while its collectives run, or it waits for a message,
        each an operator."""
        return isinstance(self._transport, NativeTransport) and not self._transport.overlaps

    @property
    def network_seconds(self) -> float:
        """Time spent in collectives between processes so far, waiting for others included."""
        return 0.0

    def reshard(
        self, shards: Sequence[tf.Tensor], steps: Sequence[Step], label: str
    ) -> list[tf.Tensor]:
        """Take one tensor's shards from one layout to another.

        That is one operator for each collective where the ranks have a transport of tensors, or one
        for each part of a collective that goes within machines and across them; and else at most
        one host call. All ranks have it or none, so that there are as many collectives on each.

        Args:
            shards: one on each rank emitted here.
            steps: what is done to them, in order.
            label: names the resharding where ranks compare their collectives.
        """
        if not steps:  # their shape may be unknown
            return list(shards)
        if self._transport is None:
            return self._resharded(shards, steps, label)
        moved = list(shards)
        for step in steps:
            parts = self._parts(step, *_shape_and_itemsize(moved[0]))
            if parts is None:
                moved = self._resharded(moved, (step,), label)
            else:
                moved = self._in_parts(moved, step, parts, label)
        return moved

    def joins(self, sums: Sequence[ReshardStep], dtype: tf.DType) -> bool:
        """Whether all-reduces of several tensors are one operator, without copies into a vector."""
        transport = self._transport
        return isinstance(transport, NativeTransport) and all(
            transport.carries_joined(collective(step), group, dtype)
            for step in sums
            for group in self.groups(step.axes)
        )

    def reduce_together(
        self, tensors: Sequence[Sequence[tf.Tensor]], step: ReshardStep, label: str
    ) -> list[list[tf.Tensor]]:
        """An all-reduce of each of several tensors, as one operator; see `joins`.

        Args:
            tensors: of each its shard on every rank emitted here; all of one dtype and of known
                shapes.
            step: the all-reduce.
            label: see `reshard`.
        """
        assert isinstance(self._transport, NativeTransport), "`joins` says whether it is"
        dtype = tensors[0][0].dtype
        total = sum(prod(shards[0].shape.as_list()) for shards in tensors)
        watch = self._watch((total,), dtype.size, (step,))
        record = f"{label}: {dtype.name}[{total}] {step}"
        call = CollectiveCall(collective(step), self.groups(step.axes))
        return on_joined_tensors(tensors, call, record, watch, self._transport.move_joined)

    def _resharded(
        self, shards: Sequence[tf.Tensor], steps: Sequence[Step], label: str
    ) -> list[tf.Tensor]:
        first = shards[0]
        shape, itemsize = _shape_and_itemsize(first)
        record = f"{label}: {first.dtype.name}{list(shape)} " + " ".join(map(str, steps))
        communicates = not all(step.is_local for step in steps)
        calls: list[OperationCall] = []
        for step in steps:
            parts = self._parts(step, shape, itemsize)
            calls += [self._call(step)] if parts is None else [part.call for part in parts]
            if communicates:
                shape = shape_after(step, self.mesh, shape)
        watch = self._watch(*_shape_and_itemsize(first), steps)
        return on_tensors(shards, calls, shape, record, watch, self._transport)

    def _in_parts(
        self, shards: Sequence[tf.Tensor], step: Step, parts: Sequence[LevelCall], label: str
    ) -> list[tf.Tensor]:
        """One step, an operator for each part."""
        moved = shards
        for part in parts:
            where = "within machines" if part.is_within else "across machines"
            record = f"{label}: {moved[0].dtype.name}{moved[0].shape.as_list()} of {step}, {where}"
            watch = self._watch_of_part(moved[0], step, part)
            moved = on_tensors(moved, [part.call], part.shape, record, watch, self._transport)
        return list(moved)

    def _parts(
        self, step: Step, shape: Sequence[int | None], itemsize: int
    ) -> list[LevelCall] | None:
        """The parts of a collective within machines and across them; None where it goes in one."""
        if not self._spans_machines or step.is_local or isinstance(step, Exchange) or None in shape:
            return None
        if self._transport is None and step.kind == "allgather":
            return None  # NumPy would go through the whole result once more to put it in order
        if not self._goes_in_hierarchy(step.kind, step.axes, _bytes(shape, itemsize)):
            return None
        return in_hierarchy(collective(step), self.groups(step.axes), shape)

    def share(self, values: Sequence[Array], axes: Sequence[int]) -> list[Array]:
        """Fed values as the first rank along ``axes`` has them (outside the graph)."""
        del axes  # one process has one value of each
        return list(values)

    def gathered(self, rows: Array) -> Array:
        """The rows of all ranks of the world, in order, from those of the ranks emitted here
        (outside the graph)."""
        return rows  # of one process

    def groups(self, axes: Sequence[int]) -> tuple[Group, ...]:
        """Per rank emitted here those that differ from it along ``axes`` only, in shard order."""
        found = []
        for member in self._members:
            ranks = self.mesh.group(member.rank, axes)
            found.append(member.subgroup([member.ranks[rank] for rank in ranks]))
        return tuple(found)

    def watch_of_messages(self) -> Watch:
        """The watch that is called when messages to and from other worlds are moved."""
        return Unwatched()

    def _call(self, step: Step) -> OperationCall:
        if not step.is_local:
            return CollectiveCall(collective(step), self.groups(step.axes))
        size = self.mesh.pieces(step.axes)
        positions = tuple(Position(self.mesh.piece(rank, step.axes), size) for rank in self.ranks)
        return LocalCall(local(step), positions)

    def _watch(self, shape: tuple[Any, ...], itemsize: int, steps: Sequence[Step]) -> Watch:
        """The watch that is called when the operator of some steps runs on a shard of a shape."""
        del shape, itemsize, steps
        return Unwatched()

    def _watch_of_part(self, shard: tf.Tensor, step: Step, part: LevelCall) -> Watch:
        """The watch that is called when the operator of a part of a step runs."""
        del shard, step, part
        return Unwatched()


def _shape_and_itemsize(shard: tf.Tensor) -> tuple[tuple[Any, ...], int]:
    return tuple(shard.shape.as_list()), shard.dtype.size


def _bytes(shape: Sequence[int | None], itemsize: int) -> int:
    return itemsize * prod(extent or 0 for extent in shape)


class SingleProcessWorld(World):
    """All N ranks in one graph."""

    name = "single-process"

    def __init__(self, mesh: Mesh, first: int = 0) -> None:
        members = [Group(each) for each in InProcessTransport.all_of(mesh.size)]
        super().__init__(mesh, members, first)


class MPIWorld(World):
    """One rank per process. Every rank of the group makes one at the same point.

    Args:
        mesh: all devices.
        group: all ranks.
        first: see `World`.
        goes_in_hierarchy: see `GoesInHierarchy`; through Horovod nothing does.
        mail: what carries messages to other worlds within this machine, if anything.
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
        self._moved: dict[_Watched, tuple[StepTraffic, ...]] = {}
        self._guard: Guard | None = None
        self._transport = _TRANSPORTS[transport](group)
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
        native = 0.0 if self._transport is None else self._transport.seconds
        messages = 0.0 if self.mail is None else self.mail.seconds
        return self._host_seconds + native + messages

    @property
    def timeline(self) -> list[Call] | None:
        """Every collective of a resharding, as it ran, where it is a list."""
        return self._timeline

    @timeline.setter
    def timeline(self, timeline: list[Call] | None) -> None:
        self._timeline = timeline
        self._watch_transport()

    @property
    def guard(self) -> Guard | None:
        """The guard of a step in which a rank may fail, during such a step; else None."""
        return self._guard

    @guard.setter
    def guard(self, guard: Guard | None) -> None:
        self._guard = guard
        self._watch_transport()

    def _watch_transport(self) -> None:
        if self._transport is not None:
            self._transport.watch(self._timeline is not None or self._guard is not None)

    def share(self, values: Sequence[Array], axes: Sequence[int]) -> list[Array]:
        """See `World.share`: numbers in one message, and strings in one."""
        if not axes or not values:
            return list(values)
        if self.guard is not None:
            self.guard.enter(2 * sum(value.nbytes for value in values))
        (group,) = self.groups(axes)
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
            own = np.concatenate([values[n].reshape(-1).view(np.uint8) for n in numbers])
            message = np.asarray(group.broadcast(own, root=0))
            ends = np.cumsum([values[n].nbytes for n in numbers])
            for n, part in zip(numbers, np.split(message, ends[:-1]), strict=True):
                # A copy: what TensorFlow is fed is aligned.
                shared[n] = part.copy().view(values[n].dtype).reshape(values[n].shape)
        return [shared[n] for n in range(len(values))]

    def gathered(self, rows: Array) -> Array:
        """See `World.gathered`: in one message."""
        (everyone,) = self._members
        return np.asarray(everyone.allgather(rows))

    def _watch(self, shape: tuple[Any, ...], itemsize: int, steps: Sequence[Step]) -> Watch:
        return _Watched(self, tuple(steps), shape, itemsize)

    def _watch_of_part(self, shard: tf.Tensor, step: Step, part: LevelCall) -> Watch:
        if not part.kind:
            return Unwatched()
        inside = [axis for axis in step.axes if len(set(self.groups((axis,))[0].hosts)) == 1]
        axes = tuple(axis for axis in step.axes if (axis in inside) == part.is_within)
        shape, itemsize = _shape_and_itemsize(shard)
        move = StepTraffic(part.kind, axes, _bytes(shape, itemsize), "")
        return _Watched(self, (), shape, itemsize, (move,))

    def watch_of_messages(self) -> Watch:
        """See `World.watch_of_messages`."""
        return _WatchedMessages(self)

    def _enter(self, watched: _Watched, shape: tuple[int, ...] | None) -> None:
        if self._guard is None:
            return
        needed = 0
        if shape is not None and watched.steps:
            memory = fused_memory(shape, watched.itemsize, watched.steps, self.mesh, self.rank)
            needed = memory.peak_bytes
        self._guard.enter(needed)

    def _ran(self, watched: _Watched, started: float, ended: float, worked: float | None) -> None:
        self._host_seconds += ended - started
        if self._timeline is not None:
            if watched not in self._moved:  # once: the step is being timed
                known = [1 if extent is None else extent for extent in watched.shape]
                moved = watched.moves or step_traffic(
                    watched.steps, self.mesh, known, watched.itemsize
                )
                self._moved[watched] = moved
            self._timeline.append(Call(started, ended, self._moved[watched], worked))


@dataclass(frozen=True, slots=True, eq=False)
class _Watched:
    """An operator of a resharding in a world of processes: its steps, or what a part of one moves,
    and what it is given."""

    world: MPIWorld
    steps: tuple[Step, ...]
    shape: tuple[int | None, ...]
    itemsize: int
    moves: tuple[StepTraffic, ...] = ()

    def before(self, shape: tuple[int, ...] | None) -> None:
        """See `Watch.before`."""
        self.world._enter(self, shape)

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        """See `Watch.after`."""
        self.world._ran(self, started, ended, worked)


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
