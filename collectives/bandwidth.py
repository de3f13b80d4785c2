"""How long collectives take here: measured inside a TensorFlow graph, all groups at once.

In a training step TensorFlow runs collectives between operators that compute. The measurement
imitates that: one graph has a chain of collectives, and between two of them an operator reads and
writes as much memory as the caches hold. The network time of a collective is the time of the rank
that arrives last, because that rank does not wait for another. Where ranks share cores, the network
time is the processor time spent in the collective (`shared_seconds`). `measure_call` measures the
remaining cost: calling Python, and waiting for the other ranks.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from collectives.buffers import Array, fresh
from collectives.errors import CollectiveError
from collectives.group import Group
from collectives.native.transport import core_share, native_transport
from collectives.operations.calls import Watch
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.broadcast import Broadcast
from collectives.operations.kinds.exchange import Exchange
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.operation import Collective
from collectives.windows import Windows

__all__ = [
    "KINDS",
    "RUNS",
    "SHORT_RUN_BYTES",
    "SharedChain",
    "Timing",
    "measure_call",
    "measure_collective",
    "measured_bytes",
    "shared_seconds",
    "timing",
]

Move = Callable[[tf.Tensor, str, Watch], tf.Tensor]
"""A function that adds to the graph an operator that moves a tensor between ranks."""

_LONGEST_CHAIN = 8
_RUN_SECONDS = 4e-3
"""Shortest run of the graph that is aimed for: the clock and the barrier take far less."""
_LEAST_RUNS, _MOST_RUNS = 3, 5
_CALL_RUNS = 18
_CALLS_TIMED, _CALL_BYTES = 32, 1 << 10
_BETWEEN_CACHES = 1.0
"""Memory that the operators between two collectives read and write, summed over all ranks of a
machine, as a multiple of the machine's last-level cache. With 1.0 a collective finds its input in
the cache and little else, as in a training step. On a machine with a cache of 32 MiB, collectives
are 15 % faster than in steps with 0.8, and 15 % slower with 1.1."""
_LEAST_BETWEEN, _MOST_BETWEEN = 1 << 20, 1 << 25
_USUAL_CACHE = 1 << 25
_LESS_BETWEEN_ELEMENTS = 1 << 20
"""Elements of the operator between two calls in `measure_call`. It is small because the time of a
larger operator would hide the time of a call."""
_CROWDED_RUNS = 3
_CROWDED_CHAIN, _CROWDED_BYTES = 4, 1 << 22
_CROWDED_BETWEEN = 1 << 18
"""Where ranks share cores, a run has at most `_CROWDED_CHAIN` collectives, fewer where they would
move more than `_CROWDED_BYTES`. The operator between two collectives is smaller there, because the
ranks that share a core displace each other's data from the cache."""
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_FAR = 1.5
"""A value is an outlier if it lies more than this many interquartile ranges outside the quartiles
(Tukey)."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A repeated measurement.

    Attributes:
        seconds: the median.
        spread: interquartile range divided by the median.
        runs: number of repetitions.
        outliers: number of repetitions far outside the quartiles (Tukey's 1.5 ranges).
    """

    seconds: float
    spread: float
    runs: int
    outliers: int


def timing(seconds: npt.ArrayLike) -> Timing:
    """Return median, spread and outliers of one or more repeated measurements."""
    values = np.asarray(seconds, np.float64)
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    margin = _FAR * (high - low)
    outliers = int(((values < low - margin) | (values > high + margin)).sum())
    return Timing(float(median), float((high - low) / median), len(values), outliers)


def shared_seconds(worked: npt.ArrayLike, everyone: Group) -> npt.NDArray[np.float64]:
    """Return the processor time of collectives on a machine whose ranks share cores.

    A rank that waits leaves its core to another rank, which computes or runs its own part of the
    collective. The time from the arrival of the last rank to the end of the collective is
    therefore longer than the time that the collective takes away from other work. The processor
    time, divided by the cores that a rank has, is the time taken away. Every rank calls.

    Args:
        worked: processor seconds of this rank in each collective.
        everyone: the ranks.

    Returns:
        For each collective the mean over ranks of its processor seconds, divided by the number of
        cores that a rank has, or by one where a rank has more.
    """
    own = np.asarray(worked, np.float64) / min(1.0, core_share())
    mean: npt.NDArray[np.float64] = everyone.allreduce(own, "sum") / everyone.size
    return mean


def _neighbours(size: int, extent: int) -> Windows:
    """The windows with which every member sends its whole shard to the next member."""
    starts = [extent * (member - 1) for member in range(size)]
    return Windows.of_group(starts, 2 * extent, extent, size)


_COLLECTIVES: dict[str, Callable[[int, tuple[int, ...], int], Collective]] = {
    "allgather": lambda _, __, dim: Allgather(dim),
    "allreduce": lambda _, __, ___: Allreduce("sum"),
    "alltoall": lambda _, __, dim: Alltoall(dim, 1 - dim),
    "broadcast": lambda _, __, ___: Broadcast(0),
    "exchange": lambda size, shape, dim: Exchange(dim, _neighbours(size, shape[dim])),
    "reduce_scatter": lambda _, __, dim: ReduceScatter(dim, "sum"),
}
"""Functions that make a collective from a group's size, an array's shape and a dimension."""
KINDS = tuple(_COLLECTIVES)
"""The collectives that can be measured."""

RUNS = {
    "allgather": ("whole", "long", "short"),
    "alltoall": ("long", "short"),
    "reduce_scatter": ("whole", "long", "short"),
}
"""How the shards that a collective cuts or joins lie in memory. ``whole``: each shard is one run;
``long`` and ``short``: a shard is several runs, copied one by one, and ``short`` runs have
``SHORT_RUN_BYTES``. The memory layout does not change the time of the other kinds."""

SHORT_RUN_BYTES = 128


def measure_collective(
    everyone: Group,
    partition: Sequence[Sequence[int]],
    kind: str,
    bytes_: int,
    config: tf.compat.v1.ConfigProto | None = None,
    run_seconds: float = 0.08,
    runs: str = "",
) -> tuple[int, Timing]:
    """Time one collective on all groups of a partition at the same time.

    Every rank of ``everyone`` calls. Tensors are float32 matrices. A collective cuts or joins them
    along the first or the last dimension, as ``runs`` says, or along both in turn if it is empty.

    Args:
        everyone: all ranks that run.
        partition: groups of one size, which split all ranks between them.
        kind: one of `KINDS`.
        bytes_: size of a rank's input; rounded up to a multiple that the group's size divides.
        config: of the session.
        run_seconds: approximate duration of all repetitions; at least three are made.
        runs: one of the kind's `RUNS`; empty for both dimensions in turn.

    Returns:
        The number of bytes measured, and the network time of one collective, counted from the
        arrival of the last rank.

    Raises:
        CollectiveError: if ``kind`` is unknown.
    """
    made, group = _made(kind), everyone.split(partition)
    rows, columns = _shape(bytes_, len(partition[0]), runs)

    def call(array: Array, dim: int) -> tuple[Array, float]:
        wanted = made(group.size, array.shape, dim)
        return _clocked(lambda: group.run(wanted, array), time.perf_counter)

    with tf.Graph().as_default() as graph:
        longest = _LONGEST_CHAIN if rows * columns < 1 << 20 else 4
        dims = _dims(kind, runs)
        chain = _Chain(call, (rows, columns), _between_elements(everyone), longest, dims)
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            chain.run(everyone, session, 1)
            single = _agreed(everyone, max(float(chain.run(everyone, session, 1).mean()), 1e-6))
            calls = min(max(ceil(_RUN_SECONDS / single), 1), chain.longest)
            wanted = min(max(int(run_seconds / (single * calls)), _LEAST_RUNS), _MOST_RUNS)
            chain.run(everyone, session, calls)  # warm-up
            means = [float(chain.run(everyone, session, calls).mean()) for _ in range(wanted)]
    return 4 * rows * columns, timing(np.maximum(means, 1e-9))


class SharedChain:
    """Times collectives as `measure_collective` does, with less care, where ranks share cores.

    Everything takes longer where ranks share cores. One graph therefore serves all collectives, and
    runs are few and short. Times are `shared_seconds`. The collectives in C++ are timed where ranks
    have them. Every rank of ``everyone`` makes the same calls.

    Args:
        everyone: all ranks that run.
        config: of the session.
    """

    def __init__(self, everyone: Group, config: tf.compat.v1.ConfigProto | None = None) -> None:
        self._everyone = everyone
        self._native = native_transport(everyone)
        self._values: Array = np.empty(0, np.float32)
        self._results: Array = np.empty(0, np.float32)
        self._runs: Sequence[Callable[[], float]] = ()
        with tf.Graph().as_default() as graph:
            shape = (1, 1)
            self._chain = _Chain(
                self._moved, shape, _CROWDED_BETWEEN, _CROWDED_CHAIN, (0, 1), shared=True
            )
            initial = tf.compat.v1.global_variables_initializer()
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        self._session.run(initial)

    def measure(
        self, partition: Sequence[Sequence[int]], kind: str, bytes_: int, runs: str = ""
    ) -> tuple[int, Timing]:
        """See `measure_collective`."""
        made, group = _made(kind), self._everyone.split(partition)
        rows, columns = _shape(bytes_, len(partition[0]), runs)
        if self._values.size < rows * columns:
            self._values = fresh((rows * columns,), np.dtype(np.float32))
            self._values[...] = 0
        array = self._values[: rows * columns].reshape(rows, columns)
        wanted = [made(group.size, array.shape, dim) for dim in _dims(kind, runs)]
        self._runs = [self._run(each, group, array) for each in wanted]
        calls = min(max(_CROWDED_BYTES // array.nbytes, 1), _CROWDED_CHAIN)
        means = [
            float(self._chain.run(self._everyone, self._session, calls).mean())
            for _ in range(1 + _CROWDED_RUNS)
        ]
        return array.nbytes, timing(np.maximum(means[1:], 1e-9))

    def _run(self, collective: Collective, group: Group, array: Array) -> Callable[[], float]:
        """Return a function that runs a collective as a step does and gives its processor time."""
        if self._native is None or not self._native.carries(collective, group, tf.float32):
            return lambda: _clocked(lambda: group.run(collective, array), time.thread_time)[1]
        if self._results.size < group.size * array.size:
            self._results = fresh((group.size * array.size,), np.dtype(np.float32))
        return self._native.prepared(collective, group, array, self._results)

    def close(self) -> None:
        """Free the session."""
        self._session.close()

    def _moved(self, value: Array, number: int) -> tuple[Array, float]:
        return value, self._runs[number]()


def measure_call(
    everyone: Group, config: tf.compat.v1.ConfigProto | None = None, shared: bool = False
) -> Timing:
    """Time the cost of a small collective of all ranks without its network time.

    The cost has two parts. One is starting the operator in C++, or calling Python where there is no
    such operator. The other is waiting for the rank that arrives last: all ranks compute the same,
    but a rank that is delayed delays all ranks.

    Args:
        everyone: all ranks, every one of which calls.
        config: of the session.
        shared: whether ranks share cores, and network time is `shared_seconds`.
    """
    transport, summed = native_transport(everyone), Allreduce("sum")
    if transport is not None and not transport.carries(summed, everyone, tf.float32):
        transport = None
    with tf.Graph().as_default() as graph, contextlib.ExitStack() as stack:
        shape = _shape(_CALL_BYTES, everyone.size)
        move: Move | None = None
        if transport is not None:
            stack.callback(transport.watch, False)
            transport.watch(True)
            move = functools.partial(transport.move, summed, everyone)
        clock = time.thread_time if shared else time.perf_counter

        def host(array: Array, _: int) -> tuple[Array, float]:
            return _clocked(lambda: everyone.allreduce(array), clock)

        between = _LESS_BETWEEN_ELEMENTS
        chain = _Chain(host, shape, between, _CALLS_TIMED, (0, 1), move, shared)
        computing = chain.between(_CALLS_TIMED)
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            alone = session.make_callable(computing)
            seconds = []
            for number in range(_CALL_RUNS + 1):
                everyone.barrier()
                started = time.perf_counter()
                alone()
                computed = time.perf_counter() - started
                started = time.perf_counter()
                network = chain.run(everyone, session, _CALLS_TIMED).sum()
                whole = chain.ended - started
                if number:  # the first warms up
                    seconds.append((whole - computed - network) / _CALLS_TIMED)
    slowest = everyone.allreduce(np.array(seconds), "max")
    return timing(np.maximum(slowest, 1e-9))


def measured_bytes(bytes_: int, size: int, runs: str = "") -> int:
    """The bytes that a group of ``size`` measures where ``bytes_`` are asked for."""
    rows, columns = _shape(bytes_, size, runs)
    return 4 * rows * columns


def _between_elements(everyone: Group) -> int:
    """Of float32, that the operator between two collectives reads, and writes."""
    bytes_ = _BETWEEN_CACHES * _last_cache_bytes() / (2 * everyone.hosts.count(everyone.host))
    return round(min(max(bytes_, _LEAST_BETWEEN), _MOST_BETWEEN)) // 4


def _last_cache_bytes() -> int:
    """What the last cache of the first core holds, as Linux says; a usual one's elsewhere."""
    sizes = [
        int(found.group(1)) << (10 if found.group(2) == "K" else 20)
        for path in _CACHES.glob("index*/size")
        if (found := re.fullmatch(r"(\d+)([KM])\s*", path.read_text()))
    ]
    return max(sizes, default=_USUAL_CACHE)


def _made(kind: str) -> Callable[[int, tuple[int, ...], int], Collective]:
    if kind not in _COLLECTIVES:
        raise CollectiveError(f"a measured collective is one of {', '.join(KINDS)}. Got {kind!r}.")
    return _COLLECTIVES[kind]


def _dims(kind: str, runs: str) -> tuple[int, int]:
    """The dimensions that are cut or joined, in turn."""
    return {"whole": (0, 0), "": (0, 1)}.get(runs, (0, 1) if kind == "alltoall" else (1, 1))


def _shape(bytes_: int, size: int, runs: str = "") -> tuple[int, int]:
    """A matrix of float32 of about ``bytes_`` bytes, both dimensions of which divide by size."""
    elements = max(1, -(-bytes_ // 4))
    rows = size
    while rows * rows * 16 < elements:
        rows *= 2
    short = SHORT_RUN_BYTES // 4 * size
    if runs == "short" and elements > short * size:
        rows = size * -(-elements // (short * size))
    columns = -(-elements // rows)
    return rows, -(-columns // size) * size


def _clocked(run: Callable[[], Array], clock: Callable[[], float]) -> tuple[Array, float]:
    """What it returns, and the seconds that it takes."""
    started = clock()
    made = run()
    return made, clock() - started


class _Chain:
    """In the default graph: collectives one after another, with an operator before each.

    Args:
        call: a collective on an array, along a dimension; returns what it made, and seconds.
        shape: of what is moved.
        between: elements of the operator before each.
        longest: number of collectives.
        dims: of them, in turn.
        move: makes an operator for it, given a tensor, a record and who is told when it runs; where
            there is none ``call`` is called from Python.
        shared: whether its times are `shared_seconds`.

    Attributes:
        longest: number of collectives.
        ended: when the last run ended, by `time.perf_counter`.
    """

    def __init__(
        self,
        call: Callable[[Array, int], tuple[Array, float]],
        shape: tuple[int, int],
        between: int,
        longest: int,
        dims: tuple[int, int],
        move: Move | None = None,
        shared: bool = False,
    ) -> None:
        self._shared = shared
        self._value = _variable("value", shape).read_value()
        self._other = _variable("between", (between,)).read_value()
        self._spans: list[float] = []
        self._links: list[tf.Operation] = []
        self.longest = longest
        self.ended = 0.0
        spans = self._spans
        last: list[tf.Operation] = [self._value.op]
        for link in range(self.longest):

            def timed(array: Array, dim: int = dims[link % 2]) -> Array:
                moved, seconds = call(array, dim)
                spans.append(seconds)
                return np.asarray(moved, order="C")

            made = self._computed(last)
            if move is not None:
                last = [move(made, "measured", self).op]
            else:
                last = [tf.numpy_function(timed, [made], made.dtype, stateful=True).op]
            self._links += last

    def before(self, shape: tuple[int, ...] | None) -> None:
        """See `Watch`."""

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        """See `Watch`."""
        worked = worked if self._shared else None
        self._spans.append(ended - started if worked is None else worked)

    def between(self, count: int) -> tf.Operation:
        """The operators of so many links without their collectives."""
        last: list[tf.Operation] = []
        for _ in range(count):
            last = [self._computed(last).op]
        return last[0]

    def run(
        self, everyone: Group, session: tf.compat.v1.Session, calls: int
    ) -> npt.NDArray[np.float64]:
        """Network seconds of each of so many collectives: see `shared_seconds`, or on the rank that
        arrives last at it."""
        self._spans.clear()
        everyone.barrier()
        session.run(self._links[calls - 1])
        self.ended = time.perf_counter()
        spans = np.array(self._spans)
        return shared_seconds(spans, everyone) if self._shared else everyone.allreduce(spans, "min")

    def _computed(self, after: list[tf.Operation]) -> tf.Tensor:
        """What the next collective is given, made when caches have been emptied."""
        with tf.control_dependencies(after):
            emptied = tf.add(self._other, 1.0).op
        with tf.control_dependencies([emptied]):
            return tf.add(self._value, 1.0)


def _variable(name: str, shape: tuple[int, ...]) -> tf.Variable:
    return tf.compat.v1.get_variable(
        name, shape, initializer=tf.zeros_initializer(), use_resource=True
    )


def _agreed(everyone: Group, value: float) -> float:
    """What the first rank says."""
    return float(everyone.broadcast(np.array([value]))[0])
