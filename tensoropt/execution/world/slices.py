"""Sparse gradients across ranks: rows travel, and become a dense tensor only at the end.

The gradient of a lookup is a list of slices: rows, and their numbers in the whole table. Where a
table's rows are split each rank still has all slices, since the gradient of a partial sum is whole
on every rank; the update takes those that it stores. Over the axes that split what is looked up
each rank has the slices of its own share; the gradient is all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import LayoutError
from tensoropt.execution.world.world import World
from tensoropt.parallel.any_size import SizeError
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.parallel.sparse import slice_layouts, travels_sparse

__all__ = ["Numbers", "PlanSteps", "SlicesEdge", "rows_of_own", "rows_on"]

Shards = Sequence[tf.Tensor]
PlanSteps = Callable[[Sequence[int], str, Any, Any], tuple[ReshardStep, ...]]
"""(shape, dtype, source layout, target layout) to steps."""
Move = Callable[[Shards, tuple[ReshardStep, ...], tuple[ReshardStep, ...], str], list[tf.Tensor]]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The row numbers of one lookup.

    Attributes:
        shape: of all of them; -1 where only a run decides.
        layout: how they lie where they are used.
        expected: how many they are, at one size where the run decides.
    """

    shape: tuple[int, ...]
    layout: Layout
    expected: int


@dataclass(frozen=True, slots=True, eq=False)
class SlicesEdge:
    """How slices pass an edge, from the gradient's layout at the consumer to the producer's.

    Attributes:
        world: the ranks emitted here.
        shape: of the whole table; -1 where only a run decides.
        source: the gradient's layout at the consumer, as if it were dense.
        target: its layout at the producer.
        plan_steps: plans a resharding.
        label: names the operations.
        move: reshards shards, forward and, for gradients of gradients, backward.
        stays_sparse: whether the gradient now being made is sparse in the script.
        numbers: of the lookup that the slices come from, if they come from one: its slices are
            then put in its order.
    """

    world: World
    shape: tuple[int, ...]
    source: Layout
    target: Layout
    plan_steps: PlanSteps
    label: str
    move: Move
    stays_sparse: Callable[[], bool] = lambda: True
    numbers: Numbers | None = None

    def arrived(self, slices: Sequence[tf.IndexedSlices]) -> list[Any] | None:
        """The gradient at the producer: slices, or where the script has it dense, the rank's part.

        None where it is to travel dense, as `spread_out` makes it.
        """
        if self.stays_sparse():
            return list(self.collected(slices))
        count = self._count(slices)
        if self.numbers is not None and (count < 0 or self._is_uneven):
            count = self.numbers.expected
        if not travels_sparse(count, self.shape, self.target):
            return None
        return _spread_out(self.world, self.collected(slices), self.shape, self.target)

    def spread_out(self, slices: Sequence[tf.IndexedSlices]) -> list[tf.Tensor]:
        """The dense gradient on each rank, as the consumer's slot has it."""
        return _spread_out(self.world, slices, self.shape, self.source)

    def collected(self, slices: Sequence[tf.IndexedSlices]) -> list[tf.IndexedSlices]:
        """The slices as the producer's slot has them."""
        if self._is_uneven:
            slices = [self._as_many(shard) for shard in slices]
        here, there = slice_layouts(self.source, self.target)
        rows, count = slices[0].indices.shape.as_list()[0], self._count(slices)
        pieces = self.world.mesh.pieces(here.dims[0])
        padded = rows
        while count > 0 and not self.world.mesh.divides(count, here.dims[0]):
            # Ranks have as many slices each: the mesh cuts their number into equal pieces.
            padded, count = padded + 1, count + pieces
        slices = [_of_length(shard, padded) for shard in slices]
        values = self._moved(
            [shard.values for shard in slices], (count, *self.shape[1:]), here, there, "values"
        )
        numbers = [shard.indices for shard in slices]
        rows_here, rows_there = Layout((here.dims[0],)), Layout((there.dims[0],))
        indices = self._moved(numbers, (count,), rows_here, rows_there, "indices")
        if padded != rows:
            values, indices = (
                [_without_padding(p, pieces, rows) for p in x] for x in (values, indices)
            )
        values, indices = ([self._in_order(p, here.dims[0]) for p in x] for x in (values, indices))
        whole = None if -1 in self.shape else tf.constant(self.shape, tf.int64)
        return [
            tf.IndexedSlices(value, index, shard.dense_shape if whole is None else whole)
            for value, index, shard in zip(values, indices, slices, strict=True)
        ]

    def _in_order(self, shard: tf.Tensor, gathered: tuple[int, ...]) -> tf.Tensor:
        """Slices in the order of the whole lookup's numbers, not by rank."""
        if self.numbers is None or set(gathered) != set(self.numbers.layout.axes):
            if self._is_uneven:
                raise LayoutError(
                    "the row numbers of a lookup are split unevenly only where all its slices are "
                    f"gathered. Got {self.label!r}, gathered over axes {list(gathered)}."
                )
            return shard
        if self._is_uneven:
            return tf.gather(shard, self._places(gathered))
        mesh, layout = self.world.mesh, self.numbers.layout
        order: list[int] = []
        for dim, axes in enumerate(layout.dims):
            order += [gathered.index(axis) for axis in axes] + [len(gathered) + dim]
        columns = shard.shape.as_list()[1:]
        if order == sorted(order) or None in columns:
            return shard
        local = layout.local_shape(self.numbers.shape, mesh)
        if local.count(-1) > 1:
            raise SizeError(f"the slices of {self.label!r} are put in order by several sizes.")
        apart = tf.reshape(shard, [*(mesh.axes[axis] for axis in gathered), *local, *columns])
        order += range(len(order), len(order) + len(columns))
        return tf.reshape(tf.transpose(apart, order), [-1, *columns])

    @property
    def _is_uneven(self) -> bool:
        """Whether ranks look up different numbers of rows."""
        if self.numbers is None or -1 in self.numbers.shape:
            return False
        return bool(self.numbers.layout.uneven_dims(self.numbers.shape, self.world.mesh))

    def _as_many(self, shard: tf.IndexedSlices) -> tf.IndexedSlices:
        """Append slices, so that every rank has as many as the rank with the most."""
        assert self.numbers is not None, "the numbers are uneven"
        most = self.numbers.layout.local_elements(self.numbers.shape, self.world.mesh)
        return _of_length(shard, most)

    def _places(self, gathered: tuple[int, ...]) -> tf.Tensor:
        """The place of each number of the whole lookup among the gathered slices of `_as_many`."""
        assert self.numbers is not None, "the numbers are uneven"
        mesh, layout, shape = self.world.mesh, self.numbers.layout, self.numbers.shape
        most, places = layout.local_elements(shape, mesh), np.zeros(shape, np.int32)
        for number, rank in enumerate(mesh.group(0, gathered)):
            local = layout.shape_on(shape, mesh, rank)
            part = number * most + np.arange(prod(local), dtype=np.int32).reshape(local)
            places[layout.region(shape, mesh, rank)] = part
        return tf.constant(places.reshape(-1))

    def _count(self, slices: Sequence[tf.IndexedSlices]) -> int:
        """Number of slices on all ranks together, -1 if only a run tells."""
        rows = slices[0].indices.shape.as_list()[0]
        here, _ = slice_layouts(self.source, self.target)
        return -1 if rows is None else int(rows) * self.world.mesh.pieces(here.dims[0])

    def _moved(
        self, shards: Shards, shape: tuple[int, ...], here: Layout, there: Layout, part: str
    ) -> list[tf.Tensor]:
        dtype = shards[0].dtype.name
        forward = self.plan_steps(shape, dtype, here, there)
        if not forward:
            return list(shards)
        backward = self.plan_steps(shape, dtype, there, here)
        return self.move(shards, forward, backward, f"{self.label}/{part}")


def _of_length(shard: tf.IndexedSlices, rows: int | None) -> tf.IndexedSlices:
    """Append slices of zeros, up to a number of slices."""
    known = shard.indices.shape.as_list()[0]
    if known == rows:
        return shard
    missing = rows - known
    values = tf.pad(shard.values, [[0, missing], *[[0, 0]] * (shard.values.shape.rank - 1)])
    return tf.IndexedSlices(values, tf.pad(shard.indices, [[0, missing]]), shard.dense_shape)


def _without_padding(gathered: tf.Tensor, pieces: int, rows: int) -> tf.Tensor:
    """Leave out what `_of_length` appended to each of the pieces that were gathered."""
    columns = tf.shape(gathered)[1:]
    apart = tf.reshape(gathered, tf.concat([[pieces, -1], columns], 0))[:, :rows]
    return tf.reshape(apart, tf.concat([[pieces * rows], columns], 0))


def _spread_out(
    world: World, slices: Sequence[tf.IndexedSlices], shape: Sequence[int], layout: Layout
) -> list[tf.Tensor]:
    """Per rank the sum of the slices of each row that it has; others are another rank's."""
    if shape[0] < 0:  # as many as a run says, and so not split
        return [
            tf.math.unsorted_segment_sum(shard.values, shard.indices, shard.dense_shape[0])
            for shard in slices
        ]
    dense = []
    for rank, shard in zip(world.ranks, slices, strict=True):
        first, end = rows_on(world.mesh, rank, layout.dims[0], shape[0])
        own, mine = rows_of_own(shard.indices, world.mesh, rank, layout.dims[0], shape[0])
        places = tf.where(mine, own, -tf.ones_like(own))  # what goes to place -1 is left out
        dense.append(tf.math.unsorted_segment_sum(shard.values, places, end - first))
    return dense


def rows_on(mesh: Mesh, rank: int, axes: Sequence[int], rows: int) -> tuple[int, int]:
    """The first of ``rows`` rows that a rank has, where ``axes`` split them, and their end."""
    return mesh.bounds(rows, axes, rank)


def rows_of_own(
    numbers: tf.Tensor, mesh: Mesh, rank: int, axes: Sequence[int], rows: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Row numbers as a rank counts its own, and which of them it has.

    Args:
        numbers: in the whole table, any shape.
        mesh: the devices.
        rank: one of them.
        axes: that split the rows.
        rows: of the whole table.
    """
    first, end = rows_on(mesh, rank, axes, rows)
    own = numbers - tf.cast(first, numbers.dtype)
    count = tf.cast(end - first, numbers.dtype)
    return own, tf.logical_and(own >= 0, own < count)
