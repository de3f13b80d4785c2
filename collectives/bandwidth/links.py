"""Measure the links of a job on several machines within seconds.

Two levels of links are measured: within a machine, and across machines. All ranks communicate at
once, as in a step: within a machine its ranks, across machines the first ranks of all machines, the
second ranks, and so on. Collectives run in a TensorFlow graph, by the transport that a step has.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from collectives.bandwidth.computation import Computation
from collectives.bandwidth.matrices import collective_maker, matrix_shape
from collectives.buffers import Array
from collectives.group import Group
from collectives.operations.calls import TensorTransport
from collectives.operations.operation import Collective

__all__ = ["LINK_KINDS", "LinkTiming", "across_machines", "measure_links", "within_machines"]

LINK_KINDS = ("allreduce", "allgather", "alltoall")
"""The measured collectives. Other kinds consist of the same messages."""
_SIZES = tuple(1 << power for power in (12, 16, 20, 21, 22, 23, 24))
"""Bytes that a rank holds before, ascending."""
_SHARES = (0.4, 0.15, 0.1)
"""Shares of the time for each kind. A kind also gets the time that kinds before it have left. The
rest is for an all-reduce beside computation."""
_RUNS = 6
_SLOW_SECONDS = 0.02
"""A collective that is expected to take longer runs once, because disturbances of the machine are
short beside it. One that takes longer twice, though it was expected to be faster, runs no more: the
bytes that a link buffers pass at once, and a size beyond them takes far longer than one below."""

Partition = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class LinkTiming:
    """The time of one collective on all groups of a level at once.

    Attributes:
        kind: one of `LINK_KINDS`.
        bytes: bytes that a rank held before.
        seconds: the least time of some runs, from the arrival of the last rank.
        processor_seconds: processor time of the rank's thread that did the work, without the time
            to feed the array. Of all threads of the process if a library runs the thread. If the
            process can compute during the collective, this time grows by the factor by which
            computation beside an all-reduce loses more: the system's work for the network takes
            part of the cores, too.
        is_beside: whether the process can compute during the collective.
    """

    kind: str
    bytes: int
    seconds: float
    processor_seconds: float
    is_beside: bool


def within_machines(hosts: Sequence[str]) -> Partition:
    """Return the groups of ranks on each machine, all of the size of the smallest group.

    The result is empty if a machine has one rank.
    """
    by_host = _ranks_by_host(hosts)
    size = min(map(len, by_host))
    return tuple(ranks[:size] for ranks in by_host) if size > 1 else ()


def across_machines(hosts: Sequence[str]) -> Partition:
    """Return the group of the first ranks of all machines, that of the second ranks, and so on.

    Ranks without a counterpart on every machine are in no group. The result is empty for one
    machine.
    """
    by_host = _ranks_by_host(hosts)
    return tuple(zip(*by_host, strict=False)) if len(by_host) > 1 else ()


def measure_links(
    everyone: Group,
    partition: Partition,
    transport: TensorTransport | None,
    seconds: float,
    config: tf.compat.v1.ConfigProto | None = None,
) -> tuple[LinkTiming, ...]:
    """Time collectives on all groups of a partition, for a limited time.

    Every rank of ``everyone`` calls and gets the same result. Sizes of a kind ascend until the next
    one would exceed its time.

    Args:
        everyone: all ranks.
        partition: groups of world ranks of one size. The first rank is in one of them.
        transport: carries tensors as in a step; collectives that it does not carry, and all if it
            is None, are calls of the group.
        seconds: the time for all measurements, once the graph is built. The smallest collective of
            each kind is always measured.
        config: configuration of the session.
    """
    active = [rank for ranks in partition for rank in ranks]
    timings: tuple[LinkTiming, ...] = ()
    if everyone.ranks[everyone.rank] in active:
        measurement = _Measurement(everyone.subgroup(sorted(active)), partition, transport)
        timings = measurement.run(seconds, config)
    rows = [[t.kind, t.bytes, t.seconds, t.processor_seconds, t.is_beside] for t in timings]
    return tuple(LinkTiming(*row) for row in everyone.allgather_object(rows)[0])


class _Measurement:
    """The collectives of one partition, in one graph.

    Args:
        active: all ranks that run.
        partition: their groups.
        transport: see `measure_links`.
    """

    def __init__(
        self, active: Group, partition: Partition, transport: TensorTransport | None
    ) -> None:
        self._active = active
        self._group = active.split(partition)
        self._transport = transport
        self._spans: list[tuple[float, float | None]] = []  # with processor seconds, if known
        self._carried: dict[str, bool] = {}

    def run(
        self, seconds: float, config: tf.compat.v1.ConfigProto | None
    ) -> tuple[LinkTiming, ...]:
        """Time collectives of ascending sizes, one kind after another, until the time is over."""
        timings: list[LinkTiming] = []
        if self._transport is not None:
            self._transport.watch(True)
        try:
            with tf.Graph().as_default() as graph:
                size = self._group.size
                value = tf.compat.v1.placeholder(tf.float32, [None, None])
                moved = {kind: self._moved(kind, value) for kind in LINK_KINDS}
                computation = Computation()
                with tf.compat.v1.Session(graph=graph, config=config) as session:
                    for operation in moved.values():  # this opens connections
                        session.run(operation, {value: np.zeros((size, size), np.float32)})
                    until = time.monotonic()
                    for (kind, operation), share in zip(moved.items(), _SHARES, strict=True):
                        until += share * seconds
                        run = session.make_callable(operation, [value])
                        timings += self._ascending(kind, run, until)
                    if all(timing.is_beside for timing in timings):
                        until += (1 - sum(_SHARES)) * seconds
                        ready = self._active.barrier
                        lost = computation.beside(session, moved[LINK_KINDS[0]], value, ready)
                        timings = self._with_lost(timings, lost, until)
        finally:
            if self._transport is not None:
                self._transport.watch(False)
        return tuple(timings)

    def _ascending(
        self, kind: str, run: Callable[[Array], object], until: float
    ) -> Iterator[LinkTiming]:
        """Time a kind of collective at ascending sizes."""
        expected = 0.0
        for size, next_size in itertools.pairwise((*_SIZES, 2 * _SIZES[-1])):
            timing = self._timed(kind, run, size, expected)
            yield timing
            expected = timing.seconds * next_size / size  # as if all of it were bandwidth
            runs = 1 if expected > _SLOW_SECONDS else 1 + _RUNS
            late = np.array([time.monotonic() + runs * expected > until])
            if self._active.broadcast(late)[0]:
                return

    def _with_lost(
        self, timings: Sequence[LinkTiming], lost: Callable[[Array, float], float], until: float
    ) -> list[LinkTiming]:
        """Return timings whose processor time is that which computation beside them loses.

        Args:
            timings: all timings, those of all-reduces first.
            lost: returns the seconds that computation loses beside the all-reduce of an array,
                given the seconds of the all-reduce alone.
            until: the end of the time for it.
        """
        left = self._active.broadcast(np.array([until - time.monotonic()]))[0]
        fitting = [
            timing
            for timing in timings
            if timing.kind == LINK_KINDS[0] and Computation.RUNS * timing.seconds < left
        ]
        if not fitting:
            return list(timings)
        large = fitting[-1]
        array = np.zeros(matrix_shape(large.bytes, self._group.size), np.float32)
        seconds = min(lost(array, large.seconds), large.seconds)
        seconds = float(self._active.allreduce(np.array([seconds]), "max")[0])
        factor = max(1.0, seconds / max(large.processor_seconds, 1e-9))
        return [
            replace(each, processor_seconds=min(factor * each.processor_seconds, each.seconds))
            for each in timings
        ]

    def before(self, shape: tuple[int, ...] | None) -> None:
        """See `Watch`."""

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        """See `Watch`."""
        self._spans.append((ended - started, worked))

    def _moved(self, kind: str, value: tf.Tensor) -> tf.Operation:
        """Add a collective of a kind to the graph."""
        collective = self._collective(kind, (1, 1))
        transport = self._transport
        self._carried[kind] = transport is not None and transport.carries(
            collective, self._group, tf.float32
        )
        if transport is not None and self._carried[kind]:
            return transport.move(collective, self._group, value, "links", self).op

        def called(array: Array) -> Array:
            made = self._collective(kind, array.shape)
            started, worked = time.perf_counter(), time.thread_time()
            result = self._group.run(made, array)
            self.after(started, time.perf_counter(), time.thread_time() - worked)
            return np.asarray(result, order="C")

        return tf.numpy_function(called, [value], tf.float32, stateful=True).op

    def _collective(self, kind: str, shape: tuple[int, ...]) -> Collective:
        return collective_maker(kind)(self._group.size, shape, 0)

    def _timed(
        self, kind: str, run: Callable[[Array], object], size: int, expected: float
    ) -> LinkTiming:
        array = np.zeros(matrix_shape(size, self._group.size), np.float32)
        crosses = len(set(self._group.hosts)) > 1
        rows = []
        for number in range(1 if expected > _SLOW_SECONDS else 1 + _RUNS):
            self._spans.clear()
            if number == 0 or not crosses:
                self._active.barrier()
            used = time.process_time()
            run(array)
            if self._transport is not None:
                self._transport.tell()
            used = time.process_time() - used
            span, worked = self._spans[-1]
            if number or expected:  # the first run of a kind warms up
                rows.append((span, used if worked is None else worked))
            if len(rows) == 2:  # one slow run may be a disturbance
                slow = min(seconds for seconds, _ in rows) > _SLOW_SECONDS
                if self._active.broadcast(np.array([slow]))[0]:
                    break
        spans, processor = np.array(rows, np.float64).T
        spans = self._active.allreduce(self._of_group(spans, crosses), "max")  # the slowest group
        processor = self._active.allreduce(processor, "max")
        # Between machines a carried collective never waits in TensorFlow's threads.
        overlaps = self._transport is not None and self._transport.overlaps
        beside = self._carried[kind] and (overlaps or crosses)
        # Other load only makes a collective longer, and each run's time has the link's delay.
        return LinkTiming(
            kind, array.nbytes, float(np.min(spans)), float(np.median(processor)), beside
        )

    def _of_group(self, spans: Array, crosses: bool) -> Array:
        """Return the seconds of some runs, given this rank's.

        Within a machine the rank that arrives last waits for no other. Across machines the data of
        other ranks may be there when it arrives, as if there were no delay; then another rank waits
        for twice the delay. In each run the mean over the ranks is one delay, or more where one
        rank comes late.
        """
        if crosses and len(spans) > 1:
            return np.asarray(self._group.allreduce(spans, "sum") / self._group.size)
        return np.asarray(self._group.allreduce(spans, "min"))


def _ranks_by_host(hosts: Sequence[str]) -> list[tuple[int, ...]]:
    by_host: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        by_host.setdefault(host, []).append(rank)
    return [tuple(ranks) for ranks in by_host.values()]
