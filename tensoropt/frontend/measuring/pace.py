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
from tensoropt.cost.measured_links import MeasuredPace

__all__ = ["measure_pace"]

_ORDER = 1024  # of the matrix
_ELEMENTS = 1 << 22  # of an array, which a cache for one core does not hold
_ARRAYS = 4
_LEAST_RUNS, _SECONDS = 3, 0.2  # of each measurement


def measure_pace(group: Group, config: tf.compat.v1.ConfigProto) -> MeasuredPace:
    """Time a product of matrices, and sums of arrays. Every rank calls and gets the slowest's pace.

    Args:
        group: the ranks, all of which compute.
        config: configuration of the session.
    """
    with tf.Graph().as_default() as graph:
        # Values that are fed would be copied.
        matrix = _variable([_ORDER, _ORDER], 1 / _ORDER)
        arrays = [_variable([_ELEMENTS], 1.0) for _ in range(_ARRAYS)]
        product = tf.matmul(matrix, matrix).op
        sums = [one.assign_add(other, read_value=False) for one, other in _pairs(arrays)]
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run([variable.initializer for variable in (matrix, *arrays)])
            multiplying = _seconds(group, session.make_callable(product))
            adding = _seconds(group, session.make_callable(tf.group(*sums)))
    flops, read_or_written = 2 * _ORDER**3, 3 * 4 * _ELEMENTS * len(sums)
    return MeasuredPace(round(flops / multiplying), round(read_or_written / adding))


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
