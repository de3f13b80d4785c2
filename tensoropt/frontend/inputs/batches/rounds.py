"""Batches in rounds: in a round each rank gets one whole batch, and the rest are split.

A data set of global batches is read as one of windows. A full window has a batch for each rank. The
last window may have fewer batches, of which each rank gets its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.arrays import Int64Array
from tensoropt.execution.world.shares import RowsTable, Share, rows_in, rows_table

__all__ = ["OwnBatch", "Rounds"]


class OwnBatch:
    """The batches of a round. Each of them is this object.

    Args:
        element: this rank's batch, as shares with all rows.
        ranks: the number of batches.
        is_first, is_last: whether no round is before it, or after it.

    Attributes:
        outputs: the outputs for the batches that have not been asked for.
    """

    def __init__(self, element: Any, ranks: int, is_first: bool, is_last: bool) -> None:
        self.element = element
        self.ranks = ranks
        self.is_first = is_first
        self.is_last = is_last
        self.outputs: list[Any] = []


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a data set.

    Attributes:
        ranks: the number of ranks, and so of batches in a round.
        rank: the number of this process, and of its batch in each round.
        size: the number of examples of a full batch.
        drops: whether a last batch with fewer examples is left out.
    """

    ranks: int
    rank: int
    size: int
    drops: bool = False

    @property
    def examples(self) -> int:
        """The number of examples of a round."""
        return self.ranks * self.size

    def table(self, table: RowsTable) -> RowsTable:
        """Return the rows that this process reads of windows of batches.

        Args:
            table: the rows that it reads of a batch that is split.
        """
        rows = [rows_in(table, size).tolist() for size in range(self.size + 1)]
        windows = [
            [
                (self.size * number + start, self.size * number + stop)
                for number, size in enumerate(self._sizes(examples))
                for start, stop in rows[size]
            ]
            for examples in range(self.examples)
        ]
        own = self.size * self.rank
        return rows_table([*windows, [(own, own + self.size)]])

    def batches(self, windows: tf.data.Dataset, table: RowsTable) -> Iterator[Any]:
        """Return an iterator over the batch of this process in each round, then over shares.

        Args:
            windows: its elements are (rows of this process, number of examples of the window).
            table: see above.
        """
        elements = iter(windows)
        window, is_first = next(elements, None), True
        while window is not None:
            following = next(elements, None)
            element, size = window[0], int(window[1])
            if size == self.examples:
                is_last = following is None or int(following[1]) < self.examples
                (own,) = _cut(element, [(np.array([[0, self.size]]), self.size)])
                yield OwnBatch(own, self.ranks, is_first, is_last)
                is_first = False
            else:
                yield from _cut(element, [(rows_in(table, n), n) for n in self._sizes(size)])
            window = following

    def _sizes(self, examples: int) -> list[int]:
        """The number of examples of each batch of a window."""
        full, rest = divmod(examples, self.size)
        return [self.size] * full + [rest] * (rest > 0 and not self.drops)


def _cut(element: Any, batches: list[tuple[Int64Array, int]]) -> Iterator[Any]:
    """The parts of an element that has rows of several batches, as shares.

    Args:
        element: the element.
        batches: for each batch its rows, and its number of examples.
    """
    first = 0
    for rows, size in batches:
        last = first + int((rows[:, 1] - rows[:, 0]).sum())
        yield tf.nest.map_structure(partial(_share, rows, size, slice(first, last)), element)
        first = last


def _share(rows: Int64Array, size: int, part: slice, leaf: Any) -> Share:
    return Share(rows, np.asarray(leaf)[part], size)
