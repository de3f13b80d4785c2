"""All single steps of resharding (collectives and local steps) from every layout, as arrays."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.parallel.resharding.numbering import NodeLookup, arrangements
from tensoropt.parallel.resharding.step import KINDS

__all__ = ["NO_DIM", "StepTable"]


NO_DIM = -1
"""Stands for the dimension of a step whose kind has none."""

_TARGET = 4  # column of the target among the columns of `StepTable.all`


@dataclass(frozen=True, slots=True, eq=False)
class _AxisSubsets:
    """All subsets of the mesh axes that have one size.

    Attributes:
        axes: int64[S, size], the axes of each subset, ascending.
        orders: int64[S, orders], the group of every order of a subset, the ascending one first.
        weight: int64[S], the change of a layout's number when the digit of each axis grows by 1.
        after: int64[S, orders], the further change if the digit of the axis at position i of the
            order grows by i.
    """

    axes: Int64Array
    orders: Int64Array
    weight: Int64Array
    after: Int64Array


class StepTable:
    """The steps from all layouts, computed with arithmetic on the numbers of layouts.

    Attributes:
        splits: int64[V, rank], the number of pieces of each dimension.
        groups: all ordered groups of axes that a step may have.
    """

    def __init__(
        self,
        axes: tuple[int, ...],
        rank: int,
        reducers: int,
        digits: Int64Array,
        lookup: NodeLookup,
    ) -> None:
        count = len(axes)
        self._axes, self._rank, self._reducers = count, rank, reducers
        self._lookup = lookup
        self._number = digits @ lookup.weights
        self._digits = digits
        self._first_partial = 1 + rank * count
        self._free = digits == 0
        self._partial = digits >= self._first_partial
        self._reducer = digits.max(axis=1, initial=0) - self._first_partial
        self.splits = np.ones((len(digits), rank), np.int64)
        self._lengths = np.zeros((len(digits), rank), np.int64)
        self._axis_at = np.zeros((len(digits), rank, count), np.int64)
        for axis, size in enumerate(axes):
            split = np.flatnonzero(~self._free[:, axis] & ~self._partial[:, axis])
            dim, position = np.divmod(digits[split, axis] - 1, max(count, 1))
            self.splits[split, dim] *= size
            self._lengths[split, dim] += 1
            self._axis_at[split, dim, position] = axis
        self.groups = arrangements(tuple(range(count)))
        self._group_of = {group: number for number, group in enumerate(self.groups)}
        # Groups by the numbers of their axes: digits in base axes + 1, where 0 stands for no axis.
        self._group_table = np.zeros((count + 1) ** count, np.int64)
        for number, group in enumerate(self.groups):
            code = sum((axis + 1) * (count + 1) ** position for position, axis in enumerate(group))
            self._group_table[code] = number
        self._subsets = [self._subsets_of_size(size) for size in range(1, count + 1)]
        self._blocks: list[tuple[Int64Array, ...]] = []

    def all(self) -> tuple[Int64Array, ...]:
        """Return the steps as columns: source, order, kind, group, target and the two dimensions.

        The order numbers the steps of one source. It breaks ties between cheapest paths. Local
        steps come first, then steps that join pieces, sorted by dimension, then steps that reduce.
        """
        self._blocks = []
        group_count, steps = len(self.groups), self._axes * (self._rank + 1)
        local = (self._rank + self._reducers) * group_count
        for dim in range(self._rank):
            for count in range(1, self._axes + 1):
                self._add_joins(dim, count, local + dim * steps + (count - 1) * (self._rank + 1))
        reducing = local + self._rank * steps
        for subsets in self._subsets:
            self._add_local(subsets)
            self._add_reductions(subsets, reducing)
        counts = [block[_TARGET].size for block in self._blocks]
        columns = np.empty((7, sum(counts)), np.int64)
        ends = itertools.accumulate(counts)
        for block, count, end in zip(self._blocks, counts, ends, strict=True):
            for column, values in zip(columns, block, strict=True):
                column[end - count : end].reshape(block[_TARGET].shape)[...] = values
        return tuple(columns)

    def _subsets_of_size(self, size: int) -> _AxisSubsets:
        axes = list(itertools.combinations(range(self._axes), size))
        orders = np.array([list(itertools.permutations(subset)) for subset in axes], np.int64)
        groups = [[self._group_of[tuple(order)] for order in row] for row in orders.tolist()]
        weights = self._lookup.weights
        return _AxisSubsets(
            np.array(axes, np.int64),
            np.array(groups, np.int64),
            weights[orders[:, 0]].sum(axis=1),
            weights[orders] @ np.arange(size),
        )

    def _add_local(self, subsets: _AxisSubsets) -> None:
        """Add the steps that keep a part of each piece, or the value on one device only."""
        source, subset = np.nonzero(self._free[:, subsets.axes].all(axis=2))
        orders = subsets.orders[subset][:, None]
        dims = np.arange(self._rank)
        order = dims[:, None] * len(self.groups) + orders
        change = self._change_by_appending(source, subsets, subset)
        self._add("slice", source, order, orders, change, to_dim=dims)
        weight = subsets.weight[subset][:, None, None]
        whole = ~self._partial[source].any(axis=1)
        for reducer in range(self._reducers):
            same = whole | (self._reducer[source] == reducer)
            order = (self._rank + reducer) * len(self.groups) + orders[same, :, :1]
            change = (self._first_partial + reducer) * weight[same]
            self._add("mask", source[same], order, orders[same, :, :1], change)

    def _add_joins(self, dim: int, count: int, order: int) -> None:
        """Add the steps that join the pieces of a dimension over its last ``count`` axes.

        The pieces of another dimension may be split over these axes instead.
        """
        source = np.flatnonzero(self._lengths[:, dim] >= count)
        start = self._lengths[source, dim] - count
        weights, lengths = self._lookup.weights, self._lengths[source]
        removed = np.zeros(source.size, np.int64)
        added = np.zeros((source.size, self._rank), np.int64)
        code = np.zeros(source.size, np.int64)
        for number in range(count):
            axis = self._axis_at[source, dim, start + number]
            removed += (1 + dim * self._axes + start + number) * weights[axis]
            dims = 1 + np.arange(self._rank) * self._axes
            added += (dims + lengths + number) * weights[axis][:, None]
            code += (axis + 1) * (self._axes + 1) ** number
        group = self._group_table[code][:, None, None]
        first_order = np.full(1, order)
        self._add("allgather", source, first_order, group, -removed[:, None, None], dim)
        others = np.array([other for other in range(self._rank) if other != dim], np.int64)
        moved = (added[:, others] - removed[:, None])[:, :, None]
        self._add("alltoall", source, order + 1 + others[:, None], group, moved, dim, others)

    def _add_reductions(self, subsets: _AxisSubsets, order: int) -> None:
        """Add the steps that reduce partial values, on all devices or each part on its own."""
        source, subset = np.nonzero(self._partial[:, subsets.axes].all(axis=2))
        orders = subsets.orders[subset][:, None]
        digit = self._first_partial + self._reducer[source]  # the digit of every axis of the subset
        removed = (digit * subsets.weight[subset])[:, None, None]
        self._add("allreduce", source, order + orders[:, :, :1], orders[:, :, :1], -removed)
        dims = np.arange(self._rank)
        scattered = order + len(self.groups) + orders * self._rank + dims[:, None]
        change = self._change_by_appending(source, subsets, subset) - removed
        self._add("reduce_scatter", source, scattered, orders, change, to_dim=dims)

    def _change_by_appending(
        self, source: Int64Array, subsets: _AxisSubsets, subset: Int64Array
    ) -> Int64Array:
        """Return the change of layouts' numbers when unused axes are appended to a dimension.

        The result is [sources, dims, orders].
        """
        first = 1 + np.arange(self._rank) * self._axes + self._lengths[source]
        change: Int64Array = (first * subsets.weight[subset][:, None])[:, :, None] + (
            subsets.after[subset][:, None]
        )
        return change

    def _add(
        self,
        kind: str,
        source: Int64Array,
        order: Int64Array,
        group: Int64Array,
        change: Int64Array,
        from_dim: int = NO_DIM,
        to_dim: Int64Array | None = None,
    ) -> None:
        """Add steps from each source. ``change`` of the layout's number is [sources, dims,
        orders]."""
        target = self._lookup.nodes(self._number[source][:, None, None] + change)
        dims = np.full(1, NO_DIM) if to_dim is None else to_dim
        kinds, froms = np.full(1, KINDS.index(kind)), np.full(1, from_dim)
        self._blocks.append(
            (source[:, None, None], order, kinds, group, target, froms, dims[:, None])
        )
