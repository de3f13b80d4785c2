"""Operations one after another: on the arrays, or on the TensorFlow tensors, of a process's ranks.

This is what runs a resharding, whatever the transport. A collective by itself is an operator of
TensorFlow's where a `TensorTransport` has one for it. Else all operations between the first and the
last are one call from TensorFlow to Python, or none where every operation is local.
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
    "CollectiveStage",
    "LocalStage",
    "MoveTogether",
    "Place",
    "Stage",
    "TensorTransport",
    "Unwatched",
    "Watch",
    "on_arrays",
    "on_tensors",
    "together_on_tensors",
]


class Place(NamedTuple):
    """Where a rank stands in a group that needs no communication."""

    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class LocalStage:
    """A local operation, and the place of each rank of this process."""

    operation: Local
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class CollectiveStage:
    """A collective, and the group of each rank of this process."""

    operation: Collective
    groups: tuple[Group, ...]


Stage = LocalStage | CollectiveStage


class Watch(Protocol):
    """Who is told when stages run."""

    def before(self, shape: tuple[int, ...] | None) -> None:
        """They are about to run. If this raises, they do not, and the run of the graph fails.

        Args:
            shape: of the arrays of a host call; None for an operator of a `TensorTransport`, whose
                results have their memory already.
        """

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        """They have run.

        Args:
            started, ended: as of `time.perf_counter`.
            worked: seconds of a processor that this rank's thread had meanwhile; None where another
                thread does the work.
        """


class Unwatched:
    """A `Watch` that nobody looks at."""

    def before(self, shape: tuple[int, ...] | None) -> None:
        """Nothing."""

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        """Nothing."""


_UNWATCHED = Unwatched()


MoveTogether = Callable[[Collective, Group, Sequence[tf.Tensor], str, Watch], list[tf.Tensor]]
"""Makes one operator that does a collective to several tensors; see `TensorTransport.move`."""


class TensorTransport(Protocol):
    """Carries tensors between the members of groups, by operators of a graph.

    Attributes:
        is_stateful: whether TensorFlow knows that it may not merge equal operators of it, or run
            one of constants ahead of time. If not, sessions must be told.
        overlaps: whether the process computes while its operators run.
    """

    is_stateful: bool
    overlaps: bool

    @property
    def seconds(self) -> float:
        """Seconds of the collectives of this process so far, without watched collectives."""

    def watch(self, is_on: bool) -> None:
        """Whether each collective tells its `Watch` when it runs; at first none does."""

    def carries(self, collective: Collective, group: Group, dtype: tf.DType) -> bool:
        """Whether there is an operator for it; the same answer on every member of the group."""

    def overtakes(self, collective: Collective, dtype: tf.DType) -> bool:
        """Whether a carried collective waits for its data only, not for other collectives.

        Every member of the group gets the same answer. See `Sequence.add`."""

    def move(
        self, collective: Collective, group: Group, tensor: tf.Tensor, record: str, watch: Watch
    ) -> tf.Tensor:
        """The collective as an operator of the default graph; its shape may be unknown.

        ``record`` is what it is, as every rank puts it.
        """


def together_on_tensors(
    tensors: Sequence[Sequence[tf.Tensor]],
    stage: CollectiveStage,
    record: str,
    watch: Watch,
    move: MoveTogether,
) -> list[list[tf.Tensor]]:
    """Run a collective that keeps shapes on several tensors at once.

    Args:
        tensors: for each tensor its shards, one per rank of this process; all of one dtype.
        stage: the collective.
        record, watch: see `on_tensors`.
        move: makes the operator of one rank.

    Returns:
        The results, in the structure of ``tensors``. No gradient passes the collective.
    """
    by_rank = list(zip(*tensors, strict=True))

    def build() -> list[tf.Tensor]:
        pairs = zip(stage.groups, by_rank, strict=True)
        moved = [move(stage.operation, *pair, record, watch) for pair in pairs]
        return [shard for shards in moved for shard in shards]

    moved = in_active_sequence(build, record)
    return [moved[number :: len(tensors)] for number in range(len(tensors))]


def on_tensors(
    tensors: Sequence[tf.Tensor],
    stages: Sequence[Stage],
    shape: Sequence[int | None],
    record: str,
    watch: Watch = _UNWATCHED,
    transport: TensorTransport | None = None,
) -> list[tf.Tensor]:
    """The stages on one tensor per rank of this process, as operations of the default graph.

    Args:
        tensors: of one shape and dtype.
        stages: in order.
        shape: of each result; not needed where all stages are local.
        record: what this is, for the `collectives.sequence.Sequence` that it joins.
        watch: is told when they run.
        transport: runs a collective that is the only stage, if it can.

    Returns:
        The results in the order of the tensors. No gradient passes a collective.
    """
    if all(isinstance(stage, LocalStage) for stage in stages):
        for stage in stages:
            assert isinstance(stage, LocalStage)
            tensors = _local(stage, tensors, tensor_elements)
        return list(tensors)

    def host(*values: Array) -> list[Array]:
        watch.before(values[0].shape)
        started, worked = perf_counter(), thread_time()
        with about(record):
            results = on_arrays(values, stages)
        watch.after(started, perf_counter(), thread_time() - worked)
        # ascontiguousarray makes a scalar a vector
        return [np.asarray(result, order="C") for result in results]

    carried = None if transport is None else _carried(transport, tensors, stages)

    def build() -> list[tf.Tensor]:
        if transport is not None and carried is not None:
            moved = zip(carried.groups, tensors, strict=True)
            results = [transport.move(carried.operation, *each, record, watch) for each in moved]
        else:
            dtypes = [tensor.dtype for tensor in tensors]
            results = tf.numpy_function(host, list(tensors), dtypes, name="reshard")
        for result in results:
            result.set_shape(shape)
        return list(results)

    overtakes = (
        transport is not None
        and carried is not None
        and transport.overtakes(carried.operation, tensors[0].dtype)
    )
    return in_active_sequence(build, record, overtakes)


def _carried(
    transport: TensorTransport, tensors: Sequence[tf.Tensor], stages: Sequence[Stage]
) -> CollectiveStage | None:
    """Return the only stage if it is a collective that the transport carries, else None."""
    match stages:
        case [CollectiveStage(operation, groups) as stage]:
            pairs = zip(groups, tensors, strict=True)
            if all(transport.carries(operation, group, each.dtype) for group, each in pairs):
                return stage
    return None


def on_arrays(values: Sequence[Array], stages: Sequence[Stage]) -> list[Array]:
    """Run the stages on one array per rank; each intermediate array is freed by the next stage."""
    values = list(values)
    for stage in stages:
        if isinstance(stage, LocalStage):
            values = _local(stage, values, array_elements)
            continue
        halves = [
            group.start(stage.operation, value)
            for group, value in zip(stage.groups, values, strict=True)
        ]
        for group in stage.groups:
            group.wait()
        values = [finish() for finish in halves]
        del halves  # with the buffers that they received into
    return values


def _local(stage: LocalStage, values: Sequence[Any], elements: Any) -> list[Any]:
    return [
        stage.operation.apply(value, place.rank, place.size, elements)
        for value, place in zip(values, stage.places, strict=True)
    ]
