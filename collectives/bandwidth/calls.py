"""Measure the cost of calling a collective, without its network time."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import tensorflow as tf

from collectives.bandwidth.chain import Chain, crosses_machines
from collectives.bandwidth.matrices import matrix_shape
from collectives.bandwidth.timing import Timing, clocked, timing
from collectives.buffers import Array
from collectives.group import Group
from collectives.native.transport import native_transport
from collectives.operations.kinds.allreduce import Allreduce

__all__ = ["measure_call"]

_RUNS = 18
_CALLS, _CALL_BYTES = 32, 1 << 10
_BETWEEN_ELEMENTS = 1 << 20
"""Elements of the operator between two calls. It is small because the time of a larger operator
would hide the time of a call."""


def measure_call(
    everyone: Group, config: tf.compat.v1.ConfigProto | None = None, shared: bool = False
) -> Timing:
    """Time the cost of a small collective of all ranks without its network time.

    The cost has two parts. One is starting the operator in C++, or calling Python where there is no
    such operator. The other is waiting for the rank that arrives last: all ranks compute the same,
    but a rank that is delayed delays all ranks.

    Args:
        everyone: all ranks, every one of which calls.
        config: configuration of the session.
        shared: whether ranks share cores, and network time is `shared_seconds`.
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
        chain = Chain(host, shape, _BETWEEN_ELEMENTS, _CALLS, (0, 1), native, shared, crosses)
        computing = chain.between(_CALLS)
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            compute = session.make_callable(computing)
            seconds = []
            for number in range(_RUNS + 1):
                everyone.barrier()
                started = time.perf_counter()
                compute()
                computed = time.perf_counter() - started
                started = time.perf_counter()
                network = chain.run(everyone, session, _CALLS).sum()
                whole = chain.ended - started
                if number:  # the first run is a warm-up
                    seconds.append((whole - computed - network) / _CALLS)
    slowest = everyone.allreduce(np.array(seconds), "max")
    return timing(np.maximum(slowest, 1e-9))
