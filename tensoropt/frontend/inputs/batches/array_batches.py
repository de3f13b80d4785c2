"""Batches of arrays in their order: each rank takes its rows from the arrays.

Keras makes a data set of them and traces its functions, in every call of a loop. That takes as long
for one batch as for many, and on each rank as long as in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.arrays import Int64Array
from tensoropt.execution.world.shares import RowsTable, Share, rows_in
from tensoropt.frontend.inputs.batches.rounds import OwnBatch, Rounds

__all__ = ["ArrayBatches", "named_arrays"]

Array = np.ndarray[Any, Any]

_NUMBERS = "biufc"  # kinds of dtypes
_PARTS = ("x", "y", "sample_weight")


class ArrayBatches:
    """The batches that Keras gathers from arrays in order.

    Args:
        arrays: the arrays in the structure of a batch, with a row for each example.
        size: the number of examples of a full batch.
        make: makes the data set of these batches.

    Attributes:
        arrays: see above.
        size: the number of examples of the largest batch.
        element_spec: that of the data set.
    """

    def __init__(self, arrays: Any, size: int, make: Callable[[], tf.data.Dataset]) -> None:
        self.arrays = arrays
        self._count = len(tf.nest.flatten(arrays)[0])
        self._make = make
        self.size = min(size, self._count)
        extent = size if self._count % size == 0 else None
        self.element_spec = tf.nest.map_structure(
            lambda array: tf.TensorSpec([extent, *array.shape[1:]], array.dtype), arrays
        )

    @classmethod
    def of(cls, arrays: Any, size: int, make: Callable[[], tf.data.Dataset]) -> ArrayBatches | None:
        """The batches of arrays or tensors; None if some are not dense, have no rows, or hold
        anything but numbers."""
        leaves = tf.nest.flatten(arrays)
        if not leaves or not all(isinstance(leaf, (np.ndarray, tf.Tensor)) for leaf in leaves):
            return None
        arrays = tf.nest.map_structure(np.asarray, arrays)
        leaves = tf.nest.flatten(arrays)
        are_numbers = all(x.dtype.kind in _NUMBERS and x.dtype.isnative for x in leaves)
        if not are_numbers or not all(x.ndim and len(x) for x in leaves):
            return None
        return cls(arrays, size, make)

    @cached_property
    def dataset(self) -> tf.data.Dataset:
        """The data set of these batches."""
        return self._make()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)

    def cardinality(self) -> int:
        """The number of batches."""
        return -(-self._count // self.size)

    def shares(self, table: RowsTable, rounds: Rounds | None) -> Iterator[Any]:
        """Return an iterator over the batches of this rank's rounds, then over shares.

        Args:
            table: the rows that this process reads of a batch that is split.
            rounds: the rounds in which the arrays are read; None for none.
        """
        full = 0 if rounds is None else self._count // rounds.examples
        for number in range(full):
            assert rounds is not None
            first = number * rounds.examples + rounds.rank * self.size
            own = self._share(first, np.array([[0, self.size]]), self.size)
            yield OwnBatch(own, rounds.ranks, number == 0, number == full - 1)
        split = 0 if rounds is None else full * rounds.examples
        for first in range(split, self._count, self.size):
            size = min(self.size, self._count - first)
            yield self._share(first, rows_in(table, size), size)

    def _share(self, first: int, rows: Int64Array, size: int) -> Any:
        """The part of a batch that has some rows of it."""

        def share(array: Array) -> Share:
            parts = [array[first + start : first + stop] for start, stop in rows.tolist()]
            part = parts[0] if len(parts) == 1 else np.concatenate([array[:0], *parts])
            return Share(rows, part, size)

        return tf.nest.map_structure(share, self.arrays)


def named_arrays(parts: Any) -> dict[str, Array]:
    """The arrays from which Keras gathers batches, by the names of its arguments."""
    by_name = dict(zip(_PARTS, parts, strict=False)) if type(parts) is tuple else {"x": parts}
    paths = [
        (name, number, leaf)
        for name, part in by_name.items()
        for number, leaf in enumerate(tf.nest.flatten(part))
    ]
    return {
        f"{name}/{number}" if number else name: np.asarray(leaf) for name, number, leaf in paths
    }
