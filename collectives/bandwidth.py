"""How long collectives take here: measured inside a TensorFlow graph, all groups at once.

A collective of a training step is a Python function that TensorFlow calls, so that is what is
timed: chains of them in one graph, without the cost of starting the graph. Every repetition starts
with a barrier of all ranks and lasts until the slowest one is through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from collectives.buffers import Array
from collectives.errors import CollectiveError
from collectives.group import Group

__all__ = ["KINDS", "Timing", "measure_collective", "measured_bytes", "timing"]

_LONGEST_CHAIN = 32
_RUN_SECONDS = 4e-3
"""A run of the graph lasts at least about this, so that the clock and the barrier do not count."""
_LEAST_RUNS, _MOST_RUNS = 3, 9
_FAR = 1.5
"""A value so many interquartile ranges outside the quartiles is an outlier (Tukey)."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A repeated measurement.

    Attributes:
        seconds: the median.
        spread: interquartile range divided by the median.
        runs: number of repetitions.
        outliers: how many of them lay far outside the quartiles (Tukey's 1.5 ranges).
    """

    seconds: float
    spread: float
    runs: int
    outliers: int


def timing(seconds: npt.ArrayLike) -> Timing:
    """Median, spread and outliers of repeated measurements, of which there is at least one."""
    values = np.asarray(seconds, np.float64)
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    margin = _FAR * (high - low)
    outliers = int(((values < low - margin) | (values > high + margin)).sum())
    return Timing(float(median), float((high - low) / median), len(values), outliers)


def _moved(group: Group, array: Array, dim: int) -> Array:
    return group.alltoall(array, split_dim=dim, concat_dim=1 - dim)


def _neighboured(group: Group, array: Array, dim: int) -> Array:
    """Every member's whole piece goes to the next one: of b bytes, b are sent."""
    extent = array.shape[dim]
    starts = [extent * (member - 1) for member in range(group.size)]
    return group.exchange(array, dim, starts, 2 * extent)


_CALLS: dict[str, Callable[[Group, Array, int], Array]] = {
    "allgather": lambda group, array, dim: group.allgather(array, dim=dim),
    "allreduce": lambda group, array, _: group.allreduce(array),
    "alltoall": _moved,
    "broadcast": lambda group, array, _: group.broadcast(array),
    "exchange": _neighboured,
    "reduce_scatter": lambda group, array, dim: group.reduce_scatter(array, dim=dim),
}
KINDS = tuple(_CALLS)
"""The collectives that can be measured."""


def measure_collective(
    everyone: Group,
    partition: Sequence[Sequence[int]],
    kind: str,
    bytes_: int,
    config: tf.compat.v1.ConfigProto | None = None,
    run_seconds: float = 0.08,
) -> tuple[int, Timing]:
    """Time one collective on all groups of a partition at the same time.

    Every rank of ``everyone`` calls. Tensors are float32 matrices; what a collective cuts or joins
    is in turn the first and the last dimension (whose pieces are copied), so the time is that of
    a tensor of which neither is known.

    Args:
        everyone: all ranks that run.
        partition: groups of one size, which split all ranks between them.
        kind: one of `KINDS`.
        bytes_: that a rank holds before; rounded up to what divides by the group's size.
        config: of the session.
        run_seconds: how long to repeat, about; three repetitions are made in any case.

    Returns:
        The number of bytes measured, and the time of one collective.

    Raises:
        CollectiveError: if ``kind`` is unknown.
    """
    if kind not in _CALLS:
        raise CollectiveError(f"a measured collective is one of {', '.join(KINDS)}. Got {kind!r}.")
    group = everyone.split(partition)
    rows, columns = _shape(bytes_, group.size)
    graph = tf.Graph()
    with graph.as_default():
        value, chain = _chain(group, kind, (rows, columns))
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            empty = _repeated(everyone, session, value, _MOST_RUNS)
            session.run(chain[0])
            first = _repeated(everyone, session, chain[0], 1)
            single = _agreed(everyone, max(first[0] - float(np.min(empty)), 1e-6))
            calls = min(max(ceil(_RUN_SECONDS / single), 1), len(chain))
            wanted = min(max(int(run_seconds / (single * calls)), _LEAST_RUNS), _MOST_RUNS)
            session.run(chain[calls - 1])  # warm-up
            runs = _repeated(everyone, session, chain[calls - 1], wanted)
    seconds = np.maximum(runs - float(np.min(empty)), 1e-9) / calls
    return 4 * rows * columns, timing(seconds)


def measured_bytes(bytes_: int, size: int) -> int:
    """The bytes that a group of ``size`` measures where ``bytes_`` are asked for."""
    rows, columns = _shape(bytes_, size)
    return 4 * rows * columns


def _shape(bytes_: int, size: int) -> tuple[int, int]:
    """A matrix of float32 of about ``bytes_`` bytes, both dimensions of which divide by size."""
    elements = max(1, -(-bytes_ // 4))
    rows = size
    while rows * rows * 16 < elements:
        rows *= 2
    columns = -(-elements // rows)
    return rows, -(-columns // size) * size


def _chain(
    group: Group, kind: str, shape: tuple[int, int]
) -> tuple[tf.Operation, list[tf.Operation]]:
    """The operation that reads a variable, and a chain of collectives of its value."""
    variable = tf.compat.v1.get_variable(
        "value", shape, initializer=tf.zeros_initializer(), use_resource=True
    )
    call = _CALLS[kind]
    value = variable.read_value()
    links: list[tf.Operation] = []
    for link in range(_LONGEST_CHAIN if shape[0] * shape[1] < 1 << 20 else 4):

        def fused(array: Array, dim: int = link % 2) -> Array:
            return np.asarray(call(group, array, dim), order="C")

        with tf.control_dependencies(links[-1:]):
            links.append(tf.numpy_function(fused, [value], value.dtype, stateful=True).op)
    return value.op, links


def _repeated(
    everyone: Group, session: tf.compat.v1.Session, operation: tf.Operation, runs: int
) -> npt.NDArray[np.float64]:
    """Seconds of several runs of the graph, each that of the slowest rank."""
    run = session.make_callable(operation)
    seconds = np.empty(runs, np.float64)
    for number in range(runs):
        everyone.barrier()
        started = time.perf_counter()
        run()
        seconds[number] = time.perf_counter() - started
    return everyone.allreduce(seconds, "max")


def _agreed(everyone: Group, value: float) -> float:
    """What the first rank says."""
    return float(everyone.broadcast(np.array([value]))[0])
