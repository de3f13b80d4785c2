"""Measure collectives of ranks that share cores, in one graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from collectives.bandwidth.chain import Chain, crosses_machines
from collectives.bandwidth.matrices import collective_maker, matrix_shape, measured_dims
from collectives.bandwidth.timing import Timing, clocked, timing
from collectives.buffers import Array, fresh
from collectives.group import Group
from collectives.native.transport import native_transport
from collectives.operations.operation import Collective

__all__ = ["SharedChain"]

_RUNS = 3
_SLOW_SECONDS = 0.2
"""A collective that takes longer is timed once, because disturbances are short beside it."""
_LONGEST_CHAIN, _CHAIN_BYTES = 4, 1 << 22
"""A run has at most `_LONGEST_CHAIN` collectives, and fewer if they would move more than
`_CHAIN_BYTES`."""
_BETWEEN_ELEMENTS = 1 << 18
"""Elements of the operator between two collectives. It is smaller than for ranks with cores of
their own, because ranks that share a core displace each other's data from the cache."""


class SharedChain:
    """Times collectives as `measure_collective` does, with less care, if ranks share cores.

    Everything takes longer when ranks share cores. One graph therefore serves all collectives, and
    runs are few and short. Times are `seconds_taken`, except across machines (`Chain.crosses`).
    The collectives in C++ are timed if ranks have them. Every rank of ``everyone`` makes the same
    calls.
    """

    def __init__(self, everyone: Group, config: tf.compat.v1.ConfigProto | None = None) -> None:
        self._everyone = everyone
        self._native = native_transport(everyone)
        self._values: Array = np.empty(0, np.float32)
        self._results: Array = np.empty(0, np.float32)
        self._calls: Sequence[Callable[[], float]] = ()
        with tf.Graph().as_default() as graph:
            self._chain = Chain(
                self._call, (1, 1), _BETWEEN_ELEMENTS, _LONGEST_CHAIN, (0, 1), shared=True
            )
            initial = tf.compat.v1.global_variables_initializer()
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        self._session.run(initial)

    def measure(
        self, partition: Sequence[Sequence[int]], kind: str, bytes_: int, runs: str = ""
    ) -> tuple[int, Timing]:
        """See `measure_collective`."""
        make, group = collective_maker(kind), self._everyone.split(partition)
        rows, columns = matrix_shape(bytes_, len(partition[0]), runs)
        if self._values.size < rows * columns:
            self._values = fresh((rows * columns,), np.dtype(np.float32))
            self._values[...] = 0
        array = self._values[: rows * columns].reshape(rows, columns)
        collectives = [make(group.size, array.shape, dim) for dim in measured_dims(kind, runs)]
        self._chain.crosses = crosses_machines(self._native, group, self._everyone)
        self._calls = [self._prepared(each, group, array) for each in collectives]
        calls = min(max(_CHAIN_BYTES // array.nbytes, 1), _LONGEST_CHAIN)
        means = [self._mean(1)]
        if means[0] < _SLOW_SECONDS:
            means = [self._mean(calls) for _ in range(_RUNS)]
        return array.nbytes, timing(np.maximum(means, 1e-9))

    def _mean(self, calls: int) -> float:
        return float(self._chain.run(self._everyone, self._session, calls).mean())

    def _prepared(self, collective: Collective, group: Group, array: Array) -> Callable[[], float]:
        """Return a function that runs a collective as a step does and gives its processor time, or
        its time if the network's thread runs it."""
        if self._native is None or not self._native.carries(collective, group, tf.float32):
            return lambda: clocked(lambda: group.run(collective, array), time.thread_time)[1]
        if self._results.size < group.size * array.size:
            self._results = fresh((group.size * array.size,), np.dtype(np.float32))
        run = self._native.prepared(collective, group, array, self._results)
        return (lambda: clocked(run, time.perf_counter)[1]) if self._chain.crosses else run

    def close(self) -> None:
        """Free the session."""
        self._session.close()

    def _call(self, value: Array, number: int) -> tuple[Array, float]:
        return value, self._calls[number]()
