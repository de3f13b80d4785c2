"""The time that computation loses beside a collective."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import tensorflow as tf

from collectives.buffers import Array

__all__ = ["Computation"]

_WIDTH = 512
"""The rows and columns of the matrices."""
_PRODUCTS = 5
"""The products of matrices that are timed to choose their number."""
_TURNS = 3
"""The measurements, of which the least times count."""


class Computation:
    """Products of matrices in the default graph, in any number."""

    RUNS: ClassVar[int] = 4 * _TURNS
    """The most time that `beside` takes, relative to the time of the collective."""

    def __init__(self) -> None:
        self._number = tf.compat.v1.placeholder(tf.int32, [])
        self._matrix = tf.compat.v1.placeholder(tf.float32, [_WIDTH, _WIDTH])
        _, last = tf.while_loop(
            lambda done, _: done < self._number,
            lambda done, matrix: (done + 1, tf.matmul(matrix, matrix)),
            [0, self._matrix],
            parallel_iterations=1,
        )
        self._last = tf.reduce_sum(last)

    def beside(
        self,
        session: tf.compat.v1.Session,
        collective: tf.Operation,
        value: tf.Tensor,
        barrier: Callable[[], object],
    ) -> Callable[[Array, float], float]:
        """Return a function that measures the seconds that computation loses beside a collective.

        Every rank calls this function, with the array that the placeholder ``value`` of the
        collective is fed, and the seconds of the collective alone. It calls ``barrier`` before each
        run with the collective.
        """
        zeros = np.zeros((_WIDTH, _WIDTH), np.float32)
        alone = session.make_callable(self._last, [self._number, self._matrix])
        collective_alone = session.make_callable(collective, [value])
        together = session.make_callable(
            [self._last, collective], [self._number, self._matrix, value]
        )

        def timed(run: Callable[..., object], *feeds: object) -> float:
            started = time.perf_counter()
            run(*feeds)
            return time.perf_counter() - started

        def lost(array: Array, seconds: float) -> float:
            of_one = min(timed(alone, _PRODUCTS, zeros) for _ in range(2)) / _PRODUCTS
            number = max(1, round(seconds / of_one))  # as long as the collective
            times = []
            for _ in range(_TURNS):
                barrier()
                both = timed(together, number, zeros, array)
                computing = timed(alone, number, zeros)
                barrier()
                times.append((both, computing, timed(collective_alone, array)))
            both, computing, sending = np.min(times, axis=0).tolist()
            fed = max(0.0, sending - seconds)  # the time to feed the array, which steps do not
            return max(0.0, float(both - computing - fed))

        return lost
