"""Measure one collective on all groups of a partition at the same time."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from functools import partial
from math import ceil
from pathlib import Path

import numpy as np
import tensorflow as tf

from collectives.bandwidth.chain import Chain, crosses_machines
from collectives.bandwidth.matrices import collective_maker, matrix_shape, measured_dims
from collectives.bandwidth.timing import Timing, clocked, seconds_taken, timing
from collectives.buffers import Array
from collectives.group import Group
from collectives.native.transport import native_transport
from collectives.operations.kinds.allreduce import Allreduce

__all__ = ["last_cache_bytes", "measure_call", "measure_collective"]

_LONGEST_CHAIN = 8
_RUN_SECONDS = 4e-3
"""Intended duration of a run of the graph, which is far longer than the clock and the barrier."""
_ALL_SECONDS = 0.08
"""Intended duration of all runs."""
_LEAST_RUNS, _MOST_RUNS = 3, 5
_SLOW_SECONDS = 0.2
"""A collective that takes longer is timed once, because disturbances are short beside it."""


def measure_collective(
    everyone: Group,
    partition: Sequence[Sequence[int]],
    kind: str,
    bytes_: int,
    config: tf.compat.v1.ConfigProto | None = None,
    runs: str = "",
) -> tuple[int, Timing]:
    """Time one collective on all groups of a partition at the same time.

    Every rank of ``everyone`` calls. Within a machine the collectives in C++ are timed, which steps
    run, if ranks have them. Tensors are float32 matrices. A collective cuts or joins them
    along the first or the last dimension, as ``runs`` says, or along both in turn if it is empty.

    Args:
        everyone: all ranks that run.
        partition: groups of one size, which split all ranks between them.
        kind: one of `KINDS`.
        bytes_: size of a rank's input; rounded up to a multiple that the group's size divides.
        config: configuration of the session.
        runs: one of the kind's `RUNS`; empty for both dimensions in turn.

    Returns:
        The number of bytes measured, and the network time of one collective, counted from the
        arrival of the last rank.

    Raises:
        CollectiveError: if ``kind`` is unknown.
    """
    maker, group = collective_maker(kind), everyone.split(partition)
    rows, columns = matrix_shape(bytes_, len(partition[0]), runs)
    dims = measured_dims(kind, runs)
    make = partial(maker, group.size, (rows, columns))

    def call(array: Array, dim: int) -> tuple[Array, float]:
        return clocked(lambda: group.run(make(dim), array), time.perf_counter)

    with tf.Graph().as_default() as graph, contextlib.ExitStack() as stack:
        longest = _LONGEST_CHAIN if rows * columns < 1 << 20 else 4
        transport, native = native_transport(everyone), None
        if transport is not None and all(
            transport.carries(make(dim), group, tf.float32) for dim in dims
        ):
            stack.callback(transport.watch, False)
            transport.watch(True)
            native = transport, make, group
        between = between_elements(everyone)
        crosses = crosses_machines(native and native[0], group, everyone)
        shape = rows, columns
        chain = Chain(call, shape, between, longest, dims, native, crosses=crosses)
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            chain.run(everyone, session, 1)
            measured = max(float(chain.run(everyone, session, 1).mean()), 1e-6)
            single = float(everyone.broadcast(np.array([measured]))[0])
            if single > _SLOW_SECONDS:
                return 4 * rows * columns, timing([single])
            calls = min(max(ceil(_RUN_SECONDS / single), 1), chain.longest)
            count = min(max(int(_ALL_SECONDS / (single * calls)), _LEAST_RUNS), _MOST_RUNS)
            chain.run(everyone, session, calls)  # warm-up
            spans = np.array([chain.run(everyone, session, calls) for _ in range(count)])
    # A delayed collective counts among its own repetitions only.
    means = np.sort(spans, axis=0).mean(1)
    return 4 * rows * columns, timing(np.maximum(means, 1e-9))


_BETWEEN_CACHES = 1.0
"""Memory that the operators between two collectives read and write, summed over all ranks of a
machine, as a multiple of the machine's last-level cache. With 1.0 a collective finds its input in
the cache and little else, as in a training step. On a machine with a cache of 32 MiB, collectives
are 15 % faster than in steps with 0.8, and 15 % slower with 1.1."""
_LEAST_BETWEEN, _MOST_BETWEEN = 1 << 20, 1 << 25
"""Bounds of the bytes that are read."""
_USUAL_CACHE = 1 << 25
"""Bytes of the cache of a machine that does not say its size."""
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def between_elements(everyone: Group) -> int:
    """Return the float32 elements that the operator between two collectives reads and writes."""
    bytes_ = _BETWEEN_CACHES * last_cache_bytes() / (2 * everyone.hosts.count(everyone.host))
    return round(min(max(bytes_, _LEAST_BETWEEN), _MOST_BETWEEN)) // 4


def last_cache_bytes() -> int:
    """Return the bytes of the first core's last-level cache, as Linux tells them."""
    sizes = [
        int(found.group(1)) << (10 if found.group(2) == "K" else 20)
        for path in _CACHES.glob("index*/size")
        if (found := re.fullmatch(r"(\d+)([KM])\s*", path.read_text()))
    ]
    return max(sizes, default=_USUAL_CACHE)


_RUNS = 18
_CALLS, _CALL_BYTES = 32, 1 << 10
_BETWEEN_ELEMENTS, _CROWDED_ELEMENTS = 1 << 20, 1 << 14
"""Elements of the operator between two calls. It is small because the time of a larger operator
would hide the time of a call. If ranks share cores, it is so small that its data stay in the caches
while another rank has the core: cold caches are in the times of operators already."""


def measure_call(
    everyone: Group, config: tf.compat.v1.ConfigProto | None = None, shared: bool = False
) -> Timing:
    """Time the cost of a small collective of all ranks without its network time.

    The cost has two parts. One is starting the operator in C++, or calling Python where there is no
    such operator. The other is waiting for the rank that arrives last: all ranks compute the same,
    but a rank that is delayed delays all ranks. If ranks share cores, the second part is the time
    that the cores spend on changing between ranks, since a rank that waits leaves its core to
    another one.

    Args:
        everyone: all ranks, every one of which calls.
        config: configuration of the session.
        shared: whether ranks share cores, and times within a machine are `seconds_taken`.
    """
    transport, allreduce = native_transport(everyone), Allreduce("sum")
    if transport is not None and not transport.carries(allreduce, everyone, tf.float32):
        transport = None
    with tf.Graph().as_default() as graph, contextlib.ExitStack() as stack:
        shape = matrix_shape(_CALL_BYTES, everyone.size)
        native = None
        if transport is not None:
            stack.callback(transport.watch, False)
            transport.watch(True)
            native = transport, lambda _: allreduce, everyone
        clock = time.thread_time if shared else time.perf_counter

        def host(array: Array, _: int) -> tuple[Array, float]:
            return clocked(lambda: everyone.allreduce(array), clock)

        crosses = crosses_machines(transport, everyone, everyone)
        between = _CROWDED_ELEMENTS if shared else _BETWEEN_ELEMENTS
        chain = Chain(host, shape, between, _CALLS, (0, 1), native, shared, crosses)
        computing = chain.between(_CALLS)
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            rows = []
            for number in range(_RUNS + 1):
                everyone.barrier()
                _, computed = clocked(lambda: session.run(computing), chain.clock)
                network = chain.run(everyone, session, _CALLS).sum()
                if number:  # the first run is a warm-up
                    rows.append((chain.seconds, computed, network))
    whole, computed, network = np.array(rows).T
    if chain.in_core_time:
        seconds = seconds_taken(whole, everyone) - seconds_taken(computed, everyone) - network
    else:  # as operators are priced by the slowest rank, its computing is no part of a call
        slowest = everyone.allreduce(np.array([whole, computed]), "max")
        seconds = slowest[0] - slowest[1] - network
    return timing(np.maximum(seconds / _CALLS, 1e-9))
