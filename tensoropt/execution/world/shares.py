"""The rows of a global batch that one process has: all that it reads, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.errors import FeedError

__all__ = ["RowsTable", "Share", "joined_ranges", "rows_in", "rows_table"]

Array = np.ndarray[Any, Any]

RowsTable: TypeAlias = Int64Array
"""int64[B + 1, k, 2]: for each number of rows of a global batch, from 0 to B, the half-open ranges
of rows that a process reads, in ascending order. Unused ranges are empty: start and stop are 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """Rows of a global batch.

    Attributes:
        rows: int64[k, 2], half-open ranges of rows of the global batch, in ascending order.
        value: these rows, one after another.
        size: the number of rows of the global batch.

    Raises:
        FeedError: if the ranges do not fit the value or the global batch.
    """

    rows: Int64Array
    value: Array
    size: int

    def __post_init__(self) -> None:
        ends = np.asarray(self.rows, np.int64).reshape(-1).tolist()
        ascends = all(before <= end for before, end in pairwise([0, *ends, self.size]))
        counted = sum(ends[1::2]) - sum(ends[::2])
        if not ascends or not self.value.ndim or counted != self.value.shape[0]:
            raise FeedError(
                "a share has ranges of rows in ascending order, within the global batch, and as "
                "many rows as the ranges count. Got ranges "
                f"{np.reshape(self.rows, (-1, 2)).tolist()} of {self.size} rows, and a value of "
                f"shape {list(self.value.shape)}."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the global batch."""
        return (self.size, *self.value.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        dtype: np.dtype[Any] = self.value.dtype
        return dtype

    def part(self, region: Sequence[slice]) -> Array | None:
        """Return a region of the global batch, without a copy; None if the share lacks rows of it.

        Args:
            region: a slice of each dimension of the global batch.
        """
        start, stop, _ = region[0].indices(self.size)
        before = 0
        for first, end in self.rows.tolist():
            if first <= start and stop <= end:
                return self._cut(before + start - first, before + stop - first, region)
            before += end - first
        return self._cut(0, 0, region) if start == stop else None

    def _cut(self, start: int, stop: int, region: Sequence[slice]) -> Array:
        place = (slice(start, stop), *region[1:])
        return np.asarray(self.value[place])


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of half-open ranges, as ascending ranges that do not touch."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        elif start < stop:
            joined.append((start, stop))
    return joined


def rows_in(table: RowsTable, size: int) -> Int64Array:
    """Return the ranges of rows that a process reads of a batch of ``size`` rows, none empty."""
    ranges = table[size]
    return np.asarray(ranges[ranges[:, 0] < ranges[:, 1]])


def rows_table(by_size: Sequence[Sequence[tuple[int, int]]]) -> RowsTable:
    """Return the table of the ranges of rows that a process reads of batches of 0, 1, ... rows."""
    table = np.zeros((len(by_size), max(1, *map(len, by_size)), 2), np.int64)
    for size, ranges in enumerate(by_size):
        table[size, : len(ranges)] = np.reshape(ranges, (-1, 2))
    return table
