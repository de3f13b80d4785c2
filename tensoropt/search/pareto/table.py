"""Ragged tables of frontiers in flat arrays, and unions of their products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from tensoropt.arrays import Float64Array, Int64Array, offsets_of
from tensoropt.search.pareto.back_pointers import BackPointers
from tensoropt.search.pareto.merge import Blocks, additions_of, merged_products, writing_of
from tensoropt.search.pareto.reduce import row_offsets
from tensoropt.search.pareto.region import Weights

__all__ = ["Table", "multiply", "union"]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of points in flat arrays; each row is a frontier.

    Attributes:
        offsets: int64[rows + 1], where each row begins; the last is the number of points.
        memory, time: int64[points], bytes and nanoseconds.
        identity: int64[points], identities of the ``BackPointers`` that issued them.
    """

    offsets: Int64Array
    memory: Int64Array
    time: Int64Array
    identity: Int64Array

    @classmethod
    def single(
        cls, memory: Int64Array, time: Int64Array, identity: Int64Array | None = None
    ) -> Table:
        """A table with a row of one point for each element of ``memory`` and ``time``."""
        if identity is None:
            identity = np.zeros(memory.size, dtype=np.int64)
        return cls(np.arange(memory.size + 1), memory.ravel(), time.ravel(), identity)

    @classmethod
    def unit(cls) -> Table:
        """A table of one row with one point, which costs nothing and chooses nothing."""
        return cls.single(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.offsets.size - 1

    @cached_property
    def sizes(self) -> Int64Array:
        """int64[rows], the number of points of each row."""
        sizes: Int64Array = self.offsets[1:] - self.offsets[:-1]
        return sizes

    @cached_property
    def is_full(self) -> bool:
        """Whether every row has a point."""
        return bool((self.offsets[1:] > self.offsets[:-1]).all())

    @property
    def is_single(self) -> bool:
        """Whether every row has exactly one point."""
        return self.memory.size == self.rows and self.is_full

    @property
    def row_of_points(self) -> Int64Array:
        """int64[points], the row of each point."""
        return np.repeat(np.arange(self.rows), self.sizes)

    def least(self, weights: Sequence[Weights]) -> Float64Array:
        """float64[rows, W], the least weighted cost of each row; infinite for an empty row."""
        per_nanosecond, per_byte = np.array(weights, dtype=np.float64).T
        costs = np.multiply.outer(self.time, per_nanosecond)
        return self.least_of_rows(costs + np.multiply.outer(self.memory, per_byte))

    def least_of_rows(self, costs: Float64Array) -> Float64Array:
        """float64[rows, W], the least of each row's ``costs``, float64[points, W]."""
        if self.is_single:
            return np.ascontiguousarray(costs)
        least = np.full((self.rows, costs.shape[1]), np.inf)
        filled = self.sizes > 0
        least[filled] = np.minimum.reduceat(costs, self.offsets[:-1][filled], axis=0)
        return least

    def take(self, rows: Int64Array) -> Table:
        """The rows numbered ``rows``, in that order."""
        if self.is_single:
            offsets = self.offsets[: rows.size + 1]
            if offsets.size <= rows.size:
                offsets = np.arange(rows.size + 1)
            return Table(offsets, self.memory[rows], self.time[rows], self.identity[rows])
        sizes = self.sizes[rows]
        offsets = offsets_of(sizes)
        shift = np.repeat(self.offsets[rows] - offsets[:-1], sizes)
        index = shift + np.arange(offsets[-1])
        return Table(offsets, self.memory[index], self.time[index], self.identity[index])

    def thinned(self, grain: int) -> Table:
        """Drop points if an earlier one in the row takes less than ``grain`` nanoseconds more."""
        stays = _apart(self.offsets, self.time, grain)
        offsets = np.searchsorted(stays, self.offsets)
        return Table(offsets, self.memory[stays], self.time[stays], self.identity[stays])

    def turned(self, count: int) -> Table:
        """Reorder rows (a, b) of ``count`` times any pairs to rows (b, a)."""
        if self.is_single:
            memory, time, identity = (
                np.ascontiguousarray(own.reshape(count, -1).T).ravel()
                for own in (self.memory, self.time, self.identity)
            )
            return Table(self.offsets, memory, time, identity)
        return self.take(np.arange(self.rows).reshape(count, -1).T.ravel())

    def group(self, groups: Int64Array, count: int) -> Table:
        """Unite the rows of each group: ``groups`` is int64[rows], from 0 to ``count`` - 1."""
        if count == self.rows and (np.bincount(groups, minlength=count) == 1).all():
            return self.take(np.argsort(groups))
        own = np.flatnonzero(self.sizes)
        own = own[np.argsort(groups[own], kind="stable")]
        nothing = np.zeros(1, dtype=np.int64)
        rows, kept, _ = merged_products(
            (self.memory, self.time),
            (nothing, nothing),
            (
                self.offsets[own],
                self.sizes[own],
                np.zeros_like(own),
                np.ones_like(own),
                groups[own],
            ),
            self.memory.size,
        )
        return Table(
            row_offsets(rows, count),
            self.memory[kept],
            self.time[kept],
            self.identity[kept],
        )


@numba.njit(cache=True, nogil=True)
def _apart(offsets: Int64Array, time: Int64Array, grain: int) -> Int64Array:
    """Return the first point of each row, and each that takes ``grain`` less time than the last
    kept."""
    kept = np.empty(time.size, np.int64)
    size = 0
    for row in range(offsets.size - 1):
        last = np.int64(0)
        for point in range(offsets[row], offsets[row + 1]):
            if point == offsets[row] or time[point] <= last - grain:
                last = time[point]
                kept[size] = point
                size += 1
    return kept[:size].copy()


def multiply(
    left: Table,
    right: Table,
    triples: tuple[Int64Array, Int64Array, Int64Array],
    count: int,
    pointers: BackPointers,
) -> Table:
    """Return sums of products of frontiers; equations 4 to 7 of the paper have this form.

    Row ``o`` of the result is the union, over the triples (a, b, o), of row ``a`` of ``left`` times
    row ``b`` of ``right``, reduced. Only survivors get identities.

    Args:
        triples: int64[T] each: the left row, the right row, and the row of the result.
        count: the number of rows of the result.

    Raises:
        SearchSizeError: if the result has too many points, or takes more additions than are left.
    """
    left_rows, right_rows, rows = triples
    if left.is_single and right.is_single and rows.size == count and (np.diff(rows) == 1).all():
        # Each row is one sum.
        return Table.single(
            left.memory[left_rows] + right.memory[right_rows],
            left.time[left_rows] + right.time[right_rows],
            pointers.pairs(left.identity[left_rows], right.identity[right_rows]),
        )
    blocks = _blocks(left.offsets, right.offsets, left_rows, right_rows, rows, count)
    return union(left, right, blocks, count, pointers)


def union(left: Table, right: Table, blocks: Blocks, count: int, pointers: BackPointers) -> Table:
    """Apply `multiply` to ranges of points instead of rows, see `merged_products`."""
    pointers.spend(additions_of(blocks[1], blocks[3]))
    rows, lefts, rights = merged_products(
        (left.memory, left.time), (right.memory, right.time), blocks, pointers.most_points
    )
    pointers.spend(writing_of(rows.size))
    return Table(
        row_offsets(rows, count),
        left.memory[lefts] + right.memory[rights],
        left.time[lefts] + right.time[rights],
        pointers.pairs(left.identity[lefts], right.identity[rights]),
    )


@numba.njit(cache=True, nogil=True)
def _blocks(
    left_offsets: Int64Array,
    right_offsets: Int64Array,
    left_rows: Int64Array,
    right_rows: Int64Array,
    rows: Int64Array,
    count: int,
) -> Blocks:
    """Return the products of triples as blocks, by the row of the result, without empty rows."""
    at = np.zeros(count + 1, np.int64)
    for number in range(rows.size):
        left, right = left_rows[number], right_rows[number]
        if (
            left_offsets[left] < left_offsets[left + 1]
            and right_offsets[right] < right_offsets[right + 1]
        ):
            at[rows[number] + 1] += 1
    for row in range(count):
        at[row + 1] += at[row]
    blocks = np.empty((5, at[count]), np.int64)
    for number in range(rows.size):
        left, right = left_rows[number], right_rows[number]
        size = left_offsets[left + 1] - left_offsets[left]
        other = right_offsets[right + 1] - right_offsets[right]
        if size > 0 and other > 0:
            place = at[rows[number]]
            at[rows[number]] += 1
            blocks[0, place], blocks[1, place] = left_offsets[left], size
            blocks[2, place], blocks[3, place] = right_offsets[right], other
            blocks[4, place] = rows[number]
    return blocks[0], blocks[1], blocks[2], blocks[3], blocks[4]
