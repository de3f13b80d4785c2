"""The single collectives and local steps from all layouts, many at a time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.parallel.resharding.numbering import Places, arrangements
from tensoropt.parallel.resharding.step import KINDS

__all__ = ["NO_DIM", "Moves"]


NO_DIM = -1
"""In place of a dimension, for kinds that do without."""

_TARGET = 4  # the place of the target among what `Moves` says of a step


@dataclass(frozen=True, slots=True, eq=False)
class _Subsets:
    """All subsets of so many axes.

    Attributes:
        axes: int64[S, size], ascending.
        orders: int64[S, orders], the group of every order of them, the ascending one first.
        weight: int64[S], what one more in the digit of each counts in a layout's number.
        after: int64[S, orders], what the places within the group count in it.
    """

    axes: Int64Array
    orders: Int64Array
    weight: Int64Array
    after: Int64Array


class Moves:
    """The steps from all layouts, many at a time: arithmetic on the layouts' numbers.

    Attributes:
        splits: int64[V, rank], into how many pieces each dimension falls.
        groups: the axes that a step may concern, in all orders.
    """

    def __init__(
        self, axes: tuple[int, ...], rank: int, reducers: int, digits: Int64Array, places: Places
    ) -> None:
        count = len(axes)
        self._axes, self._rank, self._reducers = count, rank, reducers
        self._places = places
        self._number = digits @ places.weights
        self._digits = digits
        self._first_partial = 1 + rank * count
        self._free = digits == 0
        self._partial = digits >= self._first_partial
        self._reducer = digits.max(axis=1, initial=0) - self._first_partial
        self.splits = np.ones((len(digits), rank), np.int64)
        self._lengths = np.zeros((len(digits), rank), np.int64)
        self._at = np.zeros((len(digits), rank, count), np.int64)
        for axis, size in enumerate(axes):
            on = np.flatnonzero(~self._free[:, axis] & ~self._partial[:, axis])
            dim, place = np.divmod(digits[on, axis] - 1, max(count, 1))
            self.splits[on, dim] *= size
            self._lengths[on, dim] += 1
            self._at[on, dim, place] = axis
        self.groups = arrangements(tuple(range(count)))
        self._group_of = {group: number for number, group in enumerate(self.groups)}
        # By the numbers of the axes, one digit each in base axes + 1, 0 for what is short of them.
        self._group_table = np.zeros((count + 1) ** count, np.int64)
        for number, group in enumerate(self.groups):
            code = sum((axis + 1) * (count + 1) ** place for place, axis in enumerate(group))
            self._group_table[code] = number
        self._subsets = [self._of_size(size) for size in range(1, count + 1)]
        self._parts: list[tuple[Int64Array, ...]] = []

    def all(self) -> tuple[Int64Array, ...]:
        """Of every step its source, its place among the steps from there, its kind, group, target
        and dimensions. Local steps come first, then those that bring pieces together, by
        dimension, then those that reduce: the order that breaks ties."""
        self._parts = []
        several, steps = len(self.groups), self._axes * (self._rank + 1)
        local = (self._rank + self._reducers) * several
        for dim in range(self._rank):
            for count in range(1, self._axes + 1):
                self._taken(dim, count, local + dim * steps + (count - 1) * (self._rank + 1))
        reducing = local + self._rank * steps
        for subsets in self._subsets:
            self._local(subsets)
            self._reduced(subsets, reducing)
        counts = [part[_TARGET].size for part in self._parts]
        columns = np.empty((7, sum(counts)), np.int64)
        for part, count, end in zip(self._parts, counts, itertools.accumulate(counts), strict=True):
            for column, values in zip(columns, part, strict=True):
                column[end - count : end].reshape(part[_TARGET].shape)[...] = values
        return tuple(columns)

    def _of_size(self, size: int) -> _Subsets:
        axes = list(itertools.combinations(range(self._axes), size))
        orders = np.array([list(itertools.permutations(subset)) for subset in axes], np.int64)
        groups = [[self._group_of[tuple(order)] for order in same] for same in orders.tolist()]
        weights = self._places.weights
        return _Subsets(
            np.array(axes, np.int64),
            np.array(groups, np.int64),
            weights[orders[:, 0]].sum(axis=1),
            weights[orders] @ np.arange(size),
        )

    def _local(self, subsets: _Subsets) -> None:
        """Keep a piece of a dimension; or let all but one device forget the value."""
        source, subset = np.nonzero(self._free[:, subsets.axes].all(axis=2))
        orders = subsets.orders[subset][:, None]
        dims = np.arange(self._rank)
        place = dims[:, None] * len(self.groups) + orders
        gained = self._appended(source, subsets, subset)
        self._add("slice", source, place, orders, gained, to_dim=dims)
        weight = subsets.weight[subset][:, None, None]
        whole = ~self._partial[source].any(axis=1)
        for reducer in range(self._reducers):
            alike = whole | (self._reducer[source] == reducer)
            place = (self._rank + reducer) * len(self.groups) + orders[alike, :, :1]
            gained = (self._first_partial + reducer) * weight[alike]
            self._add("mask", source[alike], place, orders[alike, :, :1], gained)

    def _taken(self, dim: int, count: int, place: int) -> None:
        """Put the last pieces of a dimension together; or cut another one instead."""
        source = np.flatnonzero(self._lengths[:, dim] >= count)
        start = self._lengths[source, dim] - count
        weights, lengths = self._places.weights, self._lengths[source]
        lost = np.zeros(source.size, np.int64)
        gained = np.zeros((source.size, self._rank), np.int64)
        code = np.zeros(source.size, np.int64)
        for number in range(count):
            axis = self._at[source, dim, start + number]
            lost += (1 + dim * self._axes + start + number) * weights[axis]
            dims = 1 + np.arange(self._rank) * self._axes
            gained += (dims + lengths + number) * weights[axis][:, None]
            code += (axis + 1) * (self._axes + 1) ** number
        group = self._group_table[code][:, None, None]
        here = np.full(1, place)
        self._add("allgather", source, here, group, -lost[:, None, None], dim)
        others = np.array([other for other in range(self._rank) if other != dim], np.int64)
        moved = (gained[:, others] - lost[:, None])[:, :, None]
        self._add("alltoall", source, place + 1 + others[:, None], group, moved, dim, others)

    def _reduced(self, subsets: _Subsets, place: int) -> None:
        """Bring partial values together, everywhere or piece by piece."""
        source, subset = np.nonzero(self._partial[:, subsets.axes].all(axis=2))
        orders = subsets.orders[subset][:, None]
        digit = self._first_partial + self._reducer[source]  # of every axis of the subset
        lost = (digit * subsets.weight[subset])[:, None, None]
        self._add("allreduce", source, place + orders[:, :, :1], orders[:, :, :1], -lost)
        dims = np.arange(self._rank)
        scattered = place + len(self.groups) + orders * self._rank + dims[:, None]
        gained = self._appended(source, subsets, subset) - lost
        self._add("reduce_scatter", source, scattered, orders, gained, to_dim=dims)

    def _appended(self, source: Int64Array, subsets: _Subsets, subset: Int64Array) -> Int64Array:
        """[sources, dims, orders], what layouts' numbers gain by free axes that come last on a
        dimension."""
        first = 1 + np.arange(self._rank) * self._axes + self._lengths[source]
        gained: Int64Array = (first * subsets.weight[subset][:, None])[:, :, None] + (
            subsets.after[subset][:, None]
        )
        return gained

    def _add(
        self,
        kind: str,
        source: Int64Array,
        place: Int64Array,
        group: Int64Array,
        gained: Int64Array,
        from_dim: int = NO_DIM,
        to_dim: Int64Array | None = None,
    ) -> None:
        """Steps from each source, [sources, dims, orders] as ``gained``."""
        target = self._places.nodes(self._number[source][:, None, None] + gained)
        dims = np.full(1, NO_DIM) if to_dim is None else to_dim
        kinds, froms = np.full(1, KINDS.index(kind)), np.full(1, from_dim)
        self._parts.append(
            (source[:, None, None], place, kinds, group, target, froms, dims[:, None])
        )
