"""Runs operations one after another on the arrays, or the TensorFlow tensors, of a process's ranks.

Every resharding runs here, whatever the transport. Local operations alone are TensorFlow operators.
A single collective is one TensorFlow operator if a `TensorTransport` has one for it. Otherwise all
operations from the first to the last run in one Python function that TensorFlow calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from collectives.buffers import Array
from collectives.group import Group
from collectives.operations import arrays as array_elements
from collectives.operations import tensors as tensor_elements
from collectives.operations.operation import Collective, Local
from collectives.sequence import in_active_sequence
from collectives.watchdog import about

__all__ = [
    "CollectiveCall",
    "LocalCall",
    "MoveJoined",
    "OperationCall",
    "Position",
    "TensorTransport",
    "Unwatched",
    "Watch",
    "on_arrays",
    "on_joined_tensors",
    "on_tensors",
]


class Position(NamedTuple):
    """The position of a rank in a group that does not communicate."""

    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class LocalCall:
    """A local operation with the position of each rank of this process."""

    operation: Local
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective with the group of each rank of this process."""

    operation: Collective
    groups: tuple[Group, ...]


OperationCall = LocalCall | CollectiveCall


class Watch(Protocol):
    """Observes when calls run."""

    def before(self, shape: tuple[int, ...] | None) -> None:
        """Called before the calls run; an exception stops them and fails the run of the graph.

        Args:
            shape: shape of the arrays of a Python function; None for an operator of a
                `TensorTransport`, because the memory of its results is allocated already.
        """

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        """Called after the calls have run; for a `TensorTransport` see `TensorTransport.tell`.

        Args:
            started, ended: times of `time.perf_counter`.
            worked: processor seconds in between of the thread that does the work; None if they are
                unknown.
        """


class Unwatched:
    """A `Watch` that does nothing."""

    def before(self, shape: tuple[int, ...] | None) -> None:
        """Nothing."""

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        """Nothing."""


_UNWATCHED = Unwatched()


MoveJoined = Callable[[Collective, Group, Sequence[tf.Tensor], str, Watch], list[tf.Tensor]]
"""Makes one operator that runs a collective on several tensors; see `TensorTransport.move`."""


class TensorTransport(Protocol):
    """Carries tensors between the members of groups by operators of a graph.

    Attributes:
        is_stateful: whether TensorFlow knows that these operators have effects, so that it neither
            merges equal ones nor runs them ahead of time on constants. If not, sessions need
            options that say so.
        overlaps: whether the process computes while these operators run.
    """

    is_stateful: bool
    overlaps: bool

    @property
    def seconds(self) -> float:
        """Seconds of this process's collectives so far, without watched ones."""

    def watch(self, is_on: bool, asks: bool = False) -> None:
        """Set whether collectives note their times for their `Watch`; at first they do not.

        Python would take longer than a small collective, so `tell` tells the times later. This also
        tells those so far. Where many collectives have not been told, the times of further ones
        only count in `seconds`.

        Args:
            is_on: whether they note their times.
            asks: whether each one calls `Watch.before`.
        """

    def tell(self) -> None:
        """Call `Watch.after` for the collectives that have noted their times since.

        These are the collectives of all transports of this kind, each with the watch it was made
        with. A watch is told nothing once the graph of its operator is gone.
        """

    def carries(self, collective: Collective, group: Group, dtype: tf.DType) -> bool:
        """Whether there is an operator for the collective; all members get the same answer."""

    def starts(self, group: Group) -> bool:
        """Whether collectives of a group run by one operator that starts them and another that
        waits; see `Sequence.add`. All members get the same answer."""

    def overtakes(self, collective: Collective, dtype: tf.DType) -> bool:
        """Whether a carried collective waits for its data only, not for other collectives.

        All members get the same answer. See `Sequence.add`.
        """

    def move(
        self, collective: Collective, group: Group, tensor: tf.Tensor, record: str, watch: Watch
    ) -> tf.Tensor:
        """Add the collective to the default graph and return its result.

        The shape of the result may be unknown. ``record`` describes the collective, in the same
        words on all ranks.
        """


def on_joined_tensors(
    tensors: Sequence[Sequence[tf.Tensor]],
    call: CollectiveCall,
    record: str,
    watch: Watch,
    move: MoveJoined,
    is_started: bool = False,
) -> list[list[tf.Tensor]]:
    """Run one collective, which keeps shapes, on several tensors as if they were joined.

    Args:
        tensors: for each tensor the shards of the ranks of this process; all of one dtype.
        call: the collective.
        record, watch: see `on_tensors`.
        move: makes the operator of one rank.
        is_started: see `Sequence.add`.

    Returns:
        The results in the structure of ``tensors``. Gradients do not flow through the collective.
    """
    by_rank = list(zip(*tensors, strict=True))

    def build() -> list[tf.Tensor]:
        pairs = zip(call.groups, by_rank, strict=True)
        moved = [move(call.operation, *pair, record, watch) for pair in pairs]
        return [shard for shards in moved for shard in shards]

    moved = in_active_sequence(build, record, is_started=is_started)
    return [moved[number :: len(tensors)] for number in range(len(tensors))]


def on_tensors(
    tensors: Sequence[tf.Tensor],
    calls: Sequence[OperationCall],
    shape: Sequence[int | None],
    record: str,
    watch: Watch = _UNWATCHED,
    transport: TensorTransport | None = None,
    shapes: Sequence[Sequence[int | None]] = (),
) -> list[tf.Tensor]:
    """Run calls on one tensor per rank of this process, as operators of the default graph.

    Args:
        tensors: one tensor per rank, all of one dtype; the members of a group have one shape where
            they communicate.
        calls: the calls, in order.
        shape: shape of each result; ignored if all calls are local.
        record: description for the `collectives.sequence.Sequence` that orders the operators.
        watch: observes when the calls run.
        transport: runs the collective if it is the only call and the transport carries it.
        shapes: the shape of each result, if they differ.

    Returns:
        The results in the order of the tensors. Gradients do not flow through collectives.
    """
    if all(isinstance(call, LocalCall) for call in calls):
        for call in calls:
            assert isinstance(call, LocalCall)
            tensors = _local(call, tensors, tensor_elements)
        return list(tensors)

    def host(*values: Array) -> list[Array]:
        watch.before(values[0].shape)
        started, worked = perf_counter(), thread_time()
        with about(record):
            results = on_arrays(values, calls)
        watch.after(started, perf_counter(), thread_time() - worked)
        # np.ascontiguousarray would turn a scalar into a vector.
        return [np.asarray(result, order="C") for result in results]

    carried = None if transport is None else _carried(transport, tensors, calls)

    def build() -> list[tf.Tensor]:
        if transport is not None and carried is not None:
            moved = zip(carried.groups, tensors, strict=True)
            results = [transport.move(carried.operation, *each, record, watch) for each in moved]
        else:
            dtypes = [tensor.dtype for tensor in tensors]
            results = tf.numpy_function(host, list(tensors), dtypes, name="reshard")
        for result, its_shape in zip(results, shapes or [shape] * len(results), strict=True):
            result.set_shape(its_shape)
        return list(results)

    overtakes = (
        transport is not None
        and carried is not None
        and transport.overtakes(carried.operation, tensors[0].dtype)
    )
    is_started = (
        transport is not None and carried is not None and transport.starts(carried.groups[0])
    )
    return in_active_sequence(build, record, overtakes, is_started)


def _carried(
    transport: TensorTransport, tensors: Sequence[tf.Tensor], calls: Sequence[OperationCall]
) -> CollectiveCall | None:
    """Return the only call if it is a collective that the transport carries, else None."""
    match calls:
        case [CollectiveCall(operation, groups) as call]:
            pairs = zip(groups, tensors, strict=True)
            if all(transport.carries(operation, group, each.dtype) for group, each in pairs):
                return call
    return None


def on_arrays(values: Sequence[Array], calls: Sequence[OperationCall]) -> list[Array]:
    """Run calls on one array per rank; each call frees the arrays of the call before it."""
    values = list(values)
    for call in calls:
        if isinstance(call, LocalCall):
            values = _local(call, values, array_elements)
            continue
        finishes = [
            group.start(call.operation, value)
            for group, value in zip(call.groups, values, strict=True)
        ]
        for group in call.groups:
            group.wait()
        values = [finish() for finish in finishes]
        del finishes  # this frees the buffers that they received into
    return values


def _local(call: LocalCall, values: Sequence[Any], elements: Any) -> list[Any]:
    return [
        call.operation.apply(value, position.rank, position.size, elements)
        for value, position in zip(values, call.positions, strict=True)
    ]
