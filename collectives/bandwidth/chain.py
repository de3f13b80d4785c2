"""A graph with a chain of collectives, and an operator before each that empties the caches."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from collectives.bandwidth.timing import clocked, seconds_taken
from collectives.buffers import Array
from collectives.group import Group
from collectives.native.transport import NativeTransport
from collectives.operations.operation import Collective

__all__ = ["Chain", "MakeCollective", "crosses_machines"]

MakeCollective = Callable[[int], Collective]
"""Makes the collective along a dimension."""


class Chain:
    """Collectives in the default graph, one after another, with an operator before each.

    Args:
        call: runs a collective on an array along a dimension; returns its result and its seconds.
        shape: shape of the array.
        between: elements of the operator before each collective.
        longest: number of collectives.
        dims: their dimensions, in turn.
        native: the transport in C++ whose operators run the collectives, the collective along each
            dimension, and the group. It tells this object their times while it is watched. If it is
            None, ``call`` is called from Python.
        shared: whether times are `seconds_taken`.
        crosses: whether some group is on several machines; the same on all ranks.

    Attributes:
        longest: number of collectives.
        crosses: see above.
        seconds: duration of the last run on this rank, without waiting for others to begin.
    """

    def __init__(
        self,
        call: Callable[[Array, int], tuple[Array, float]],
        shape: tuple[int, int],
        between: int,
        longest: int,
        dims: tuple[int, int],
        native: tuple[NativeTransport, MakeCollective, Group] | None = None,
        shared: bool = False,
        crosses: bool = False,
    ) -> None:
        self._shared, self.crosses = shared, crosses
        self._native = None if native is None else native[0]
        self._value = _variable("value", shape).read_value()
        self._other = _variable("between", (between,)).read_value()
        self._spans: list[float] = []
        self._links: list[tf.Operation] = []
        self.longest = longest
        self.seconds = 0.0
        spans = self._spans
        last: list[tf.Operation] = [self._value.op]
        for link in range(self.longest):

            def timed(array: Array, dim: int = dims[link % 2]) -> Array:
                moved, seconds = call(array, dim)
                spans.append(seconds)
                return np.asarray(moved, order="C")

            tensor = self._computed(last)
            if native is not None:
                transport, make, group = native
                collective = make(dims[link % 2])
                last = [transport.move(collective, group, tensor, "measured", self).op]
            else:
                last = [tf.numpy_function(timed, [tensor], tensor.dtype, stateful=True).op]
            self._links += last

    def before(self, shape: tuple[int, ...] | None) -> None:
        """See `Watch`."""

    def after(self, started: float, ended: float, worked: float | None = None) -> None:
        """See `Watch`."""
        worked = worked if self.in_core_time else None
        self._spans.append(ended - started if worked is None else worked)

    @property
    def in_core_time(self) -> bool:
        """Whether times are `seconds_taken`."""
        return self._shared and not self.crosses

    @property
    def clock(self) -> Callable[[], float]:
        """The clock of ``seconds``: that of this process's threads where times are core time."""
        return time.process_time if self.in_core_time else time.perf_counter

    def between(self, count: int) -> tf.Operation:
        """Return the operators of ``count`` links, without their collectives."""
        last: list[tf.Operation] = []
        for _ in range(count):
            last = [self._computed(last).op]
        return last[0]

    def run(
        self, everyone: Group, session: tf.compat.v1.Session, calls: int
    ) -> npt.NDArray[np.float64]:
        """Run the first ``calls`` collectives, and return the network seconds of each.

        They are those of the rank that arrives last, or `seconds_taken`. Where a group is on
        several machines they are the mean over the ranks: the rank that arrives last finds the data
        of the others there, and does not see the link's delay.
        """
        self._spans.clear()
        everyone.barrier()
        _, self.seconds = clocked(lambda: session.run(self._links[calls - 1]), self.clock)
        if self._native is not None:
            self._native.tell()
        spans = np.array(self._spans)
        if self.in_core_time:
            return seconds_taken(spans, everyone)
        if self.crosses:
            return np.asarray(everyone.allreduce(spans, "sum") / everyone.size)
        return everyone.allreduce(spans, "min")

    def _computed(self, after: list[tf.Operation]) -> tf.Tensor:
        """Return the input of a collective, computed after the caches are emptied."""
        with tf.control_dependencies(after):
            emptied = tf.add(self._other, 1.0).op
        with tf.control_dependencies([emptied]):
            return tf.add(self._value, 1.0)


def _variable(name: str, shape: tuple[int, ...]) -> tf.Variable:
    return tf.compat.v1.get_variable(
        name, shape, initializer=tf.zeros_initializer(), use_resource=True
    )


def crosses_machines(transport: NativeTransport | None, group: Group, everyone: Group) -> bool:
    """Whether the network's thread runs the collectives of some rank's group.

    Args:
        transport: the transport in C++, if ranks have one.
        group: a rank's group.
        everyone: all ranks, every one of which calls.
    """
    starts = transport is not None and transport.starts(group)
    return bool(everyone.allreduce(np.array([float(starts)]), "max")[0])
