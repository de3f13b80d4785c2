"""The pace at which the ranks of a job compute, measured within half a second.

All ranks compute at once, as in a step: they share cores, caches and memory. A description of the
machine does not know its load, nor whether its cores are threads of one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from collectives import Group
from collectives.bandwidth.measure import last_cache_bytes
from tensoropt.cost.measured_links import MeasuredPace

__all__ = ["measure_pace", "measure_paces"]

_ORDER = 1024  # of the matrix
_ARRAYS = 4
_CACHES = 2.0
"""Memory of the arrays of all ranks of a machine, as a multiple of its last-level cache. A step
goes through weights, gradients and optimizer state once, and finds little of them in the cache. On
a machine with a cache of 260 MiB, sums within it reach 39 GB/s; sums over twice as much, and the
updates of steps, 21 to 25."""
_LEAST_ELEMENTS, _MOST_ELEMENTS = 1 << 20, 1 << 25  # of an array
_LEAST_RUNS, _SECONDS = 3, 0.2  # of each measurement
_ROUND_SECONDS = 0.1  # of each round of `measure_paces`

_Timed = Callable[[Callable[[], object]], float]


def measure_pace(group: Group, config: tf.compat.v1.ConfigProto) -> MeasuredPace:
    """Time a product of matrices, and sums of arrays. Every rank calls and gets the slowest's pace.

    Args:
        group: the ranks, all of which compute.
        config: configuration of the session.
    """
    (pace,) = _paces(group, config, lambda run: _seconds(group, run), 1)
    return pace


def measure_paces(
    group: Group, config: tf.compat.v1.ConfigProto, rounds: int
) -> list[tuple[MeasuredPace, ...]]:
    """Return the pace of every rank in several rounds. Every rank calls and gets the same.

    All ranks compute for the same time, so that slower ones never have the machine to themselves.
    """
    own = _paces(group, config, lambda run: _seconds_within(group, run), rounds)
    figures = group.allgather_object([(p.flops_per_second, p.bytes_per_second) for p in own])
    return [tuple(MeasuredPace(*of_rank[n]) for of_rank in figures) for n in range(rounds)]


def _paces(
    group: Group, config: tf.compat.v1.ConfigProto, seconds: _Timed, rounds: int
) -> list[MeasuredPace]:
    """Return the pace in each round, by the mean seconds of runs in one session."""
    elements = _elements(group)
    with tf.Graph().as_default() as graph:
        # Values that are fed would be copied.
        matrix = _variable([_ORDER, _ORDER], 1 / _ORDER)
        arrays = [_variable([elements], 1.0) for _ in range(_ARRAYS)]
        product = tf.matmul(matrix, matrix).op
        sums = [one.assign_add(other, read_value=False) for one, other in _pairs(arrays)]
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run([variable.initializer for variable in (matrix, *arrays)])
            runs = session.make_callable(product), session.make_callable(tf.group(*sums))
            timed = [(seconds(runs[0]), seconds(runs[1])) for _ in range(rounds)]
    flops, read_or_written = 2 * _ORDER**3, 3 * 4 * elements * len(sums)
    return [
        MeasuredPace(round(flops / multiplying), round(read_or_written / adding))
        for multiplying, adding in timed
    ]


def _elements(group: Group) -> int:
    """Return the elements of float32 of each array."""
    bytes_ = _CACHES * last_cache_bytes() / group.local_size()
    return round(min(max(bytes_ / 4 / _ARRAYS, _LEAST_ELEMENTS), _MOST_ELEMENTS))


def _variable(shape: list[int], value: float) -> tf.Variable:
    return tf.compat.v1.Variable(tf.fill(shape, value), use_resource=True)


def _pairs(arrays: list[tf.Variable]) -> Iterable[tuple[tf.Variable, tf.Variable]]:
    return zip(arrays[::2], arrays[1::2], strict=True)


def _seconds(group: Group, run: Callable[[], object]) -> float:
    """Return the mean seconds of a run on the slowest rank.

    Other processes may take a core for longer than one run, so a mean tells more than a median.
    """
    run()
    count = max(_LEAST_RUNS, round(_SECONDS / _slowest(group, run, 1)))
    return _slowest(group, run, count)


def _slowest(group: Group, run: Callable[[], object], count: int) -> float:
    """Return the mean seconds of ``count`` runs on the slowest rank."""
    group.barrier()
    started = time.perf_counter()
    for _ in range(count):
        run()
    spent = time.perf_counter() - started
    return float(group.allreduce(np.array([spent / count]), "max")[0])


def _seconds_within(group: Group, run: Callable[[], object]) -> float:
    """Return this rank's mean seconds of the runs that fit into a round."""
    run()
    group.barrier()
    started, count, spent = time.perf_counter(), 0, 0.0
    while spent < _ROUND_SECONDS or not count:
        run()
        count += 1
        spent = time.perf_counter() - started
    group.barrier()
    return spent / count
