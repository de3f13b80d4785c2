"""Collectives on tensors by Horovod's operators.

They use Horovod's tensor fusion, and the library that Horovod was built for: MPI on CPUs, NCCL on
GPUs.
"""

from __future__ import annotations

import sys
import threading
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np
import tensorflow as tf

from collectives.buffers import dimension
from collectives.errors import CollectiveError, TransportError
from collectives.group import Group
from collectives.horovod.module import horovod_module, start
from collectives.native.transport import NativeTransport, native_transport
from collectives.operations.calls import Watch
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.operation import Collective
from collectives.reduction import wire

__all__ = ["HorovodTransport", "horovod_transport"]

_REDUCED = frozenset({"uint8", "int8", "int32", "int64", "float32", "float64"})
_SCATTERED = _REDUCED - {"uint8", "int8"}
_MOVED = frozenset(
    {tf.bool, tf.float16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64}
    | {tf.uint8, tf.uint16}
)
_MOVED_AS = {tf.bfloat16: tf.uint16, tf.uint32: tf.int32, tf.uint64: tf.int64}
"""Horovod lacks these element types. Each one travels as another type of the same size."""


class HorovodTransport:
    """See `collectives.operations.calls.TensorTransport`; `horovod_transport` makes instances.

    A collective that Horovod lacks runs without Horovod. The first rank prints a note about that,
    once for each kind of collective.

    Reductions need not keep the order of the graph's sequence: Horovod runs a collective as soon as
    all members have come to it, and may send several as one message. A reduction that runs early
    takes no more memory than its gradient did. A gathered weight would take more, so gathers keep
    their order.

    Args:
        group: all ranks that have a transport; Horovod's ranks are the positions in the group.
        module: ``horovod.tensorflow``, started for the group.
    """

    is_stateful = False
    overlaps = True

    def __init__(self, group: Group, module: Any) -> None:
        self.group = group
        self._horovod = module
        self._reducers = {
            "sum": module.Sum,
            "max": module.Max,
            "min": module.Min,
            "prod": module.Product,
        }
        self._sets = {tuple(range(group.size)): module.global_process_set}
        self._built = 0
        self._noted: set[str] = set()
        self._is_watched = self._asks = False
        self._lock = threading.Lock()
        self._ended = self._seconds = 0.0

    @cached_property
    def _ordinary(self) -> list[NativeTransport]:
        """The transport of collectives that Horovod lacks, in a list; empty where ranks have none.

        The first collective that Horovod lacks creates it."""
        native = native_transport(self.group)
        if native is not None:
            native.watch(self._is_watched, self._asks)
        return [] if native is None else [native]

    def _ordinary_so_far(self) -> list[NativeTransport]:
        return self._ordinary if "_ordinary" in self.__dict__ else []

    @property
    def seconds(self) -> float:
        """See `TensorTransport.seconds`."""
        return self._seconds + sum(each.seconds for each in self._ordinary_so_far())

    def watch(self, is_on: bool, asks: bool = False) -> None:
        """See `TensorTransport.watch`. Collectives built while it is on keep one order."""
        self._is_watched, self._asks = is_on, asks
        for each in self._ordinary_so_far():
            each.watch(is_on, asks)

    def tell(self) -> None:
        """See `TensorTransport.tell`. Horovod's own collectives tell at once."""
        for each in self._ordinary_so_far():
            each.tell()

    def carries(self, collective: Collective, group: Group, dtype: tf.DType) -> bool:
        """See `TensorTransport.carries`: Horovod or the transport in C++ has an operator."""
        if _is_known(collective, dtype):
            return True
        kind = f"{_kind(collective)} of {dtype.name}"
        if self.group.rank == 0 and kind not in self._noted:
            self._noted.add(kind)
            sys.stderr.write(f"collectives: Horovod has no {kind}; it runs without Horovod.\n")
        return any(each.carries(collective, group, dtype) for each in self._ordinary)

    def starts(self, group: Group) -> bool:
        """See `TensorTransport.starts`: never."""
        del group
        return False

    def overtakes(self, collective: Collective, dtype: tf.DType) -> bool:
        """See `TensorTransport.overtakes`: true of reductions that are not watched."""
        is_reduction = isinstance(collective, (Allreduce, ReduceScatter))
        return is_reduction and not self._is_watched and _is_known(collective, dtype)

    def move(
        self, collective: Collective, group: Group, tensor: tf.Tensor, record: str, watch: Watch
    ) -> tf.Tensor:
        """Add the collective to the default graph, and return its result."""
        if not _is_known(collective, tensor.dtype):
            return self._ordinary[0].move(collective, group, tensor, record, watch)
        with tf.control_dependencies([tensor]):
            started = tf.numpy_function(partial(self._before, watch), [], tf.float64, name="start")
        with tf.control_dependencies([started]):
            moved = self._moved(collective, group, tensor)
        with tf.control_dependencies([moved]):
            ended = tf.numpy_function(partial(self._after, watch), [started], tf.float64)
        with tf.control_dependencies([ended]):
            return tf.stop_gradient(moved, name="reshard")

    def _moved(self, collective: Collective, group: Group, tensor: tf.Tensor) -> tf.Tensor:
        """Add Horovod's operator, with the casts and reorderings that it needs.

        Horovod orders the members of a process set by rank, not by their order in the group.
        """
        self._built += 1  # on all ranks alike
        options = {
            "name": f"tensoropt_{self._built}",
            "ignore_name_scope": True,
            "process_set": self._process_set(group),
        }
        by_rank = sorted(range(group.size), key=lambda position: group.ranks[position])
        in_order = by_rank == list(range(group.size))

        def stacked(x: tf.Tensor, dim: int) -> tf.Tensor:
            shards = tf.split(x, group.size, dim)
            return tf.stack([shards[position] for position in by_rank])

        def joined(x: tf.Tensor, dim: int) -> tf.Tensor:
            shards = dict(zip(by_rank, tf.unstack(x, group.size), strict=True))
            return tf.concat([shards[position] for position in range(group.size)], dim)

        dtype, rank = tensor.dtype, tensor.shape.rank
        match collective:
            case Allreduce(reducer):
                way = wire(np.dtype(dtype.as_numpy_dtype), reducer)
                operation = self._reducers[way.reducer]
                sent = tf.cast(tensor, way.dtype)
                return tf.cast(self._horovod.allreduce(sent, op=operation, **options), dtype)
            case ReduceScatter(dim, reducer):
                way = wire(np.dtype(dtype.as_numpy_dtype), reducer)
                sent, dim = tf.cast(tensor, way.dtype), dimension(dim, rank)
                extent = tensor.shape[dim]
                direct = in_order and dim == 0 and extent is not None and extent % group.size == 0
                scattered = self._horovod.reducescatter(
                    sent if direct else stacked(sent, dim), op=self._horovod.Sum, **options
                )
                return tf.cast(scattered if direct else tf.squeeze(scattered, [0]), dtype)
            case Allgather(dim):
                sent, dim = _seen_as(tensor, _MOVED_AS.get(dtype, dtype)), dimension(dim, rank)
                if in_order and dim == 0:
                    gathered = self._horovod.allgather(sent, **options)
                else:
                    gathered = joined(self._horovod.allgather(sent[tf.newaxis], **options), dim)
                return _seen_as(gathered, dtype)
            case Alltoall(split_dim, concat_dim):
                sent = _seen_as(tensor, _MOVED_AS.get(dtype, dtype))
                blocks = stacked(sent, dimension(split_dim, rank))
                received = self._horovod.alltoall(blocks, **options)
                return _seen_as(joined(received, dimension(concat_dim, rank)), dtype)
        raise TypeError(f"`carries` says which collectives there are. Got {collective}.")

    def _process_set(self, group: Group) -> Any:
        """Return Horovod's process set of a group.

        All ranks call at the same time, each with its own group of one partition of all ranks. The
        first call registers all groups of the partition."""
        own = [self.group.ranks.index(rank) for rank in sorted(group.ranks)]
        if tuple(own) not in self._sets:
            for ranks in dict.fromkeys(map(tuple, self.group.allgather_object(own))):
                try:
                    self._sets[ranks] = self._horovod.add_process_set(ranks)
                except ValueError as error:
                    raise TransportError(
                        "Horovod takes new groups of ranks while it runs. Got one, started by the "
                        f"script, that does not: {error}\nStart it with "
                        "`hvd.init(process_sets='dynamic')`, or leave that to TensorOpt."
                    ) from error
        return self._sets[tuple(own)]

    def _before(self, watch: Watch) -> float:
        if self._is_watched:
            watch.before(None)
        return perf_counter()

    def _after(self, watch: Watch, started: float) -> float:
        """Record the time of a collective.

        Time in which several collectives run counts for the one that ends first."""
        with self._lock:
            ended = perf_counter()
            started, self._ended = max(float(started), self._ended), ended
            if not self._is_watched:
                self._seconds += ended - started
        if self._is_watched:
            watch.after(started, ended)
        return ended


def _is_known(collective: Collective, dtype: tf.DType) -> bool:
    """Whether Horovod has the collective for elements of this type."""
    match collective:
        case Allreduce(reducer):
            return _travels_as(dtype, reducer) in _REDUCED
        case ReduceScatter(_, reducer):
            return reducer == "sum" and _travels_as(dtype, reducer) in _SCATTERED
        case Allgather() | Alltoall():
            return dtype in _MOVED or dtype in _MOVED_AS
    return False


def _seen_as(tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tensor if tensor.dtype == dtype else tf.bitcast(tensor, dtype)


def _travels_as(dtype: tf.DType, reducer: str) -> str:
    try:
        return wire(np.dtype(dtype.as_numpy_dtype), reducer).dtype.name
    except CollectiveError:  # which the host call raises when it runs
        return ""


def _kind(collective: Collective) -> str:
    """The name of a collective in a note."""
    name = type(collective).__name__.lower()
    return f"{name} by {collective.reducer}" if isinstance(collective, ReduceScatter) else name


_transport: HorovodTransport | None = None


def horovod_transport(group: Group) -> HorovodTransport | None:
    """Return the transport of a group through Horovod, or None for a group of one rank.

    Every member calls, at the same point. Horovod runs for one group at a time: a call with other
    ranks ends the Horovod of the previous group.

    Raises:
        TransportError: on every member, if one has no Horovod.
    """
    global _transport
    if group.size == 1:
        return None
    if _transport is None or _transport.group.ranks != group.ranks:
        module = horovod_module(group)
        start(module, group)
        _transport = HorovodTransport(group, module)
    return _transport
