"""The emission of a resharding: how the shards of a tensor move between ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import tensorflow as tf

from collectives import Group
from collectives.native.transport import NativeTransport
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
from collectives.operations.hierarchy import Grid, LevelCall, in_hierarchy
from collectives.operations.local import Select
from collectives.sequence import active_sequence
from tensoropt.cost.hierarchy import large_ones
from tensoropt.execution.world.resharding.operations import collective, local
from tensoropt.execution.world.resharding.uneven_pieces import own_part, selections
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import (
    Exchange,
    ReshardStep,
    Step,
    shape_after,
)

__all__ = ["GoesInHierarchy", "Resharder", "bytes_of", "shape_and_itemsize"]

GoesInHierarchy = Callable[[str, tuple[int, ...], int], bool]
"""Whether a collective goes within machines and across them, by its kind, mesh axes and the bytes
that a rank holds before; the same on every rank."""


class Resharder:
    """Emits the reshardings of the ranks that one process emits.

    Args:
        mesh: all devices.
        members: for each rank that this process emits, the group of all ranks as it sees it.

    Attributes:
        mesh: see above.
        ranks: the ranks that this process emits; the shards of a tensor come in this order.
    """

    def __init__(self, mesh: Mesh, members: Sequence[Group]) -> None:
        self.mesh = mesh
        self.ranks = tuple(group.rank for group in members)
        self._transport: TensorTransport | None = None
        self._goes_in_hierarchy: GoesInHierarchy = large_ones
        self._members = tuple(members)
        self._spans_machines = any(len(set(member.hosts)) > 1 for member in members)

    def reshard(
        self, shards: Sequence[tf.Tensor], steps: Sequence[Step], label: str
    ) -> list[tf.Tensor]:
        """Take one tensor's shards from one layout to another.

        With a transport of tensors each collective is one operator; a collective that goes within
        machines and across them is one for each part. Without it, all steps are at most one host
        call. All ranks have such a transport or none, so they emit equally many collectives.

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
            moved = self._begin_step(moved, step, label)()
        return moved

    def begin_reshard(
        self,
        shards: Sequence[tf.Tensor],
        steps: Sequence[Step],
        label: str,
        as_bfloat16: bool = False,
    ) -> Callable[[], list[tf.Tensor]]:
        """Emit a resharding up to its last part across machines, and return a function that emits
        the rest and returns the shards.

        Collectives that are emitted in between need not wait for the other machines.

        Args:
            shards, steps, label: see `reshard`.
            as_bfloat16: whether all-reduces across machines round float32; see `Allreduce`.
        """
        if not steps or self._transport is None or not self._spans_machines:
            done = self.reshard(shards, steps, label)
            return lambda: done
        moved = list(shards)
        for step in steps[:-1]:
            moved = self._begin_step(moved, step, label, as_bfloat16)()
        return self._begin_step(moved, steps[-1], label, as_bfloat16)

    def _begin_step(
        self, shards: list[tf.Tensor], step: Step, label: str, as_bfloat16: bool = False
    ) -> Callable[[], list[tf.Tensor]]:
        parts = self._parts(step, *shape_and_itemsize(shards[0]), as_bfloat16)
        if parts is None:
            moved = self._resharded(shards, (step,), label, as_bfloat16)
            return lambda: moved
        begun = max(number for number, part in enumerate(parts, 1) if not part.is_within)
        moved = self._in_parts(shards, step, parts[:begun], label)
        return lambda: self._in_parts(moved, step, parts[begun:], label)

    def joins(self, sums: Sequence[ReshardStep], dtype: tf.DType) -> bool:
        """Whether one operator can do these all-reduces of several tensors, each where it lies."""
        transport = self._transport
        return isinstance(transport, NativeTransport) and all(
            transport.carries_joined(collective(step), group, dtype) and not Grid.of(group.hosts)
            for step in sums
            for group in self.groups(step.axes)
        )

    def reduce_together(
        self,
        tensors: Sequence[Sequence[tf.Tensor]],
        step: ReshardStep,
        label: str,
        as_bfloat16: bool = False,
    ) -> list[list[tf.Tensor]]:
        """All-reduce each of several tensors by one operator; see `joins`.

        Args:
            tensors: for each tensor its shards on the ranks emitted here. All have one dtype and
                known shapes.
            step: the all-reduce.
            label: see `reshard`.
            as_bfloat16: see `begin_reshard`.
        """
        assert isinstance(self._transport, NativeTransport), "`joins` says whether it is"
        dtype = tensors[0][0].dtype
        total = sum(prod(shards[0].shape.as_list()) for shards in tensors)
        record = f"{label}: {dtype.name}{_recorded((total,), (step,))} {step}"
        watch = self._watch(record, (total,), dtype.size, (step,))
        call = CollectiveCall(collective(step, as_bfloat16), self.groups(step.axes))
        is_started = self._transport.starts(call.groups[0])
        move = self._transport.move_joined
        return on_joined_tensors(tensors, call, record, watch, move, is_started)

    def _resharded(
        self,
        shards: Sequence[tf.Tensor],
        steps: Sequence[Step],
        label: str,
        as_bfloat16: bool = False,
    ) -> list[tf.Tensor]:
        first = shards[0]
        shape, itemsize = shape_and_itemsize(first)
        named = [_recorded(shape, steps), *map(str, steps)]
        record = f"{label}: {first.dtype.name}" + " ".join(named)
        watch = self._watch(record, shape, itemsize, steps)
        if any(map(_is_uneven, steps)):
            return self._resharded_unevenly(shards, steps, record, watch, as_bfloat16)
        communicates = not all(step.is_local for step in steps)
        calls: list[OperationCall] = []
        shapes = [tuple(shard.shape.as_list()) for shard in shards]
        for step in steps:
            parts = self._parts(step, shape, itemsize, as_bfloat16)
            calls += (
                [self._call(step, as_bfloat16)] if parts is None else [part.call for part in parts]
            )
            if communicates:
                shape = shape_after(step, self.mesh, shape)
                shapes = [shape_after(step, self.mesh, each) for each in shapes]
        return on_tensors(shards, calls, shape, record, watch, self._transport, shapes)

    def _resharded_unevenly(
        self,
        shards: Sequence[tf.Tensor],
        steps: Sequence[Step],
        record: str,
        watch: Watch,
        as_bfloat16: bool,
    ) -> list[tf.Tensor]:
        """Reshard a tensor whose pieces differ before or after some of the steps."""
        calls: list[OperationCall] = []
        shapes = [tuple(shard.shape.as_list()) for shard in shards]
        moved = list(shards)
        for step in steps:
            for call in self._uneven_calls(step, as_bfloat16):
                shapes = [self._shape_after(call, step, n, each) for n, each in enumerate(shapes)]
                calls.append(call)
                if self._transport is not None:  # it takes one collective alone
                    moved = on_tensors(moved, [call], (), record, watch, self._transport, shapes)
        if self._transport is not None:
            return moved
        return on_tensors(shards, calls, (), record, watch, None, shapes)

    def _uneven_calls(self, step: Step, as_bfloat16: bool) -> list[OperationCall]:
        if isinstance(step, Exchange) or not step.shape or step.kind == "mask":
            return [self._call(step, as_bfloat16)]
        positions = tuple(Position(n, len(self.ranks)) for n in range(len(self.ranks)))
        if step.is_local:
            return [LocalCall(own_part(step, self.mesh, self.ranks), positions)]
        before, after = selections(step, self.mesh, self.ranks)
        return [
            *(LocalCall(each, positions) for each in before),
            self._call(step, as_bfloat16),
            *(LocalCall(each, positions) for each in after),
        ]

    def _shape_after(
        self, call: OperationCall, step: Step, position: int, shape: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Return the shape of a rank's array after a call."""
        if isinstance(call.operation, Select):
            selected = sum(end - start for start, end in call.operation.ranges[position])
            dim = call.operation.dim
            return (*shape[:dim], selected, *shape[dim + 1 :])
        if isinstance(step, ReshardStep):
            step = replace(step, shape=())
        return shape_after(step, self.mesh, shape)

    def _in_parts(
        self, shards: Sequence[tf.Tensor], step: Step, parts: Sequence[LevelCall], label: str
    ) -> list[tf.Tensor]:
        """Take a step in parts, each by an operator of its own."""
        moved = shards
        for part in parts:
            where = "within machines" if part.is_within else "across machines"
            record = f"{label}: {moved[0].dtype.name}{moved[0].shape.as_list()} of {step}, {where}"
            watch = self._watch_of_part(record, moved[0], step, part)
            moved = on_tensors(moved, [part.call], part.shape, record, watch, self._transport)
        return list(moved)

    def _parts(
        self, step: Step, shape: Sequence[int | None], itemsize: int, as_bfloat16: bool = False
    ) -> list[LevelCall] | None:
        """The parts of a collective within machines and across them; None where it goes in one."""
        if not self._spans_machines or step.is_local or isinstance(step, Exchange) or None in shape:
            return None
        if _shards_differ((step,)):
            return None
        if self._transport is None and step.kind == "allgather":
            return None  # NumPy would go through the whole result once more to put it in order
        if not self._goes_in_hierarchy(step.kind, step.axes, bytes_of(shape, itemsize)):
            return None
        return in_hierarchy(collective(step, as_bfloat16), self.groups(step.axes), shape)

    def groups(self, axes: Sequence[int]) -> tuple[Group, ...]:
        """For each rank emitted here, the ranks that differ from it along ``axes`` only.

        They are in the order of the shards.
        """
        found = []
        for member in self._members:
            ranks = self.mesh.group(member.rank, axes)
            found.append(member.subgroup([member.ranks[rank] for rank in ranks]))
        return tuple(found)

    def _call(self, step: Step, as_bfloat16: bool = False) -> OperationCall:
        if not step.is_local:
            return CollectiveCall(collective(step, as_bfloat16), self.groups(step.axes))
        size = self.mesh.pieces(step.axes)
        positions = tuple(Position(self.mesh.piece(rank, step.axes), size) for rank in self.ranks)
        return LocalCall(local(step), positions)

    def _watch(
        self, record: str, shape: tuple[Any, ...], itemsize: int, steps: Sequence[Step]
    ) -> Watch:
        """The watch that is called when the operator of some steps runs on a shard of a shape."""
        del record, shape, itemsize, steps
        return Unwatched()

    def _watch_of_part(self, record: str, shard: tf.Tensor, step: Step, part: LevelCall) -> Watch:
        """The watch that is called when the operator of a part of a step runs."""
        del record, shard, step, part
        return Unwatched()


def shape_and_itemsize(shard: tf.Tensor) -> tuple[tuple[Any, ...], int]:
    """The shape of a shard, and the bytes of one of its values."""
    return tuple(shard.shape.as_list()), shard.dtype.size


def bytes_of(shape: Sequence[int | None], itemsize: int) -> int:
    """The bytes of a tensor; 0 for a shape that is partly unknown."""
    return itemsize * prod(extent or 0 for extent in shape)


def _is_uneven(step: Step) -> bool:
    """Whether the shards of the tensor differ before or after a step."""
    return isinstance(step, ReshardStep) and bool(step.shape)


def _shards_differ(steps: Sequence[Step]) -> bool:
    """Whether the shapes of shards may differ between ranks where some steps begin."""
    sequence = active_sequence()
    return any(map(_is_uneven, steps)) or (sequence is not None and sequence.shards_differ)


def _recorded(shape: Sequence[int | None], steps: Sequence[Step]) -> str:
    """Return the shape of a shard before some steps in the words that all ranks use."""
    return "[]" if _shards_differ(steps) else str(list(shape))
