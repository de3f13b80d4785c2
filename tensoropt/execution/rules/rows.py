"""Rules of tables split by rows: each rank looks up, and updates, the rows that it stores.

A row number outside the whole table stays outside on every rank, so that the kernel's own check
finds it. One device would refuse it, so no rank may look it up as zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensoropt.execution.rules.within import Rule, Shards, SplitOperator
from tensoropt.execution.world.slices import rows_of_own
from tensoropt.graph.operator import Operator
from tensoropt.parallel.any_size import SizeError
from tensoropt.parallel.configuration import input_slot
from tensoropt.parallel.sparse import looks_up_rows

__all__ = ["gather", "own_slices"]


def gather(split: SplitOperator, inputs: Shards) -> Shards:
    """Look up the rows that a rank stores, and zeros for other rows: a partial sum over the ranks.

    The table may be a variable's handle. Then its rows are looked up without a copy of the table.
    """
    world, operator, derivation = split.world, split.operator, split.derivation
    if -1 in derivation.input_shapes[0]:
        raise SizeError(f"{operator.name!r} looks up rows of a table whose size is open.")
    tables, numbers = inputs[:2]
    axes = split.axes_of("row")
    layout = input_slot(derivation, split.configuration, 0).forward
    axis, batch_dims = _axis_and_batch(operator)
    rows = derivation.input_shapes[0][axis]
    results = []
    for rank, table, number in zip(world.ranks, tables, numbers, strict=True):
        shape = layout.shape_on(derivation.input_shapes[0], world.mesh, rank)
        local, is_local = rows_of_own(number, world.mesh, rank, axes, rows)
        outside = tf.logical_or(number < 0, number >= rows)
        place = tf.where(is_local, local, tf.where(outside, number, tf.zeros_like(local)))

        def look_up(
            table: tf.Tensor,
            place: tf.Tensor = place if axes else number,
            is_local: tf.Tensor | None = is_local if axes else None,
            shape: tuple[int, ...] = shape,
        ) -> tf.Tensor:
            shard = _local(operator, table, place, axis, batch_dims, shape)
            if is_local is None:
                return shard
            return tf.where(_mask(is_local, axis, batch_dims, len(shape)), shard, 0)

        if looks_up_rows(operator, 0):
            whole = (rows, *shape[1:])
            results.append(tf.custom_gradient(_with_slices(look_up, number, whole))(table))
        else:
            results.append(look_up(table))
    return [results]


def _axis_and_batch(operator: Operator) -> tuple[int, int]:
    if operator.type == "Gather":
        return 0, 0
    axis = operator.input_specs[2].value
    assert axis is not None, "rows are split only where the axis is known"
    rank, of_numbers = (len(spec.shape) for spec in operator.input_specs[:2])
    batch_dims = int(str(operator.attributes.get("batch_dims", 0)))
    return int(axis.reshape(())) % rank, batch_dims % of_numbers if batch_dims < 0 else batch_dims


def _local(
    operator: Operator,
    table: tf.Tensor,
    place: tf.Tensor,
    axis: int,
    batch_dims: int,
    shape: tuple[int, ...],
) -> tf.Tensor:
    if table.dtype != tf.resource:
        return tf.raw_ops.GatherV2(params=table, indices=place, axis=axis, batch_dims=batch_dims)
    dtype = operator.outputs[0].dtype
    shard = tf.raw_ops.ResourceGather(
        resource=table, indices=place, dtype=dtype, batch_dims=batch_dims
    )
    if place.shape.rank is not None:
        shard.set_shape([*place.shape.as_list(), *shape[axis + 1 :]])  # axis is batch_dims
    return shard


def _mask(is_local: tf.Tensor, axis: int, batch_dims: int, rank: int) -> tf.Tensor:
    """Reshape a mask of row numbers to fit the output of a lookup.

    In the output, the dimensions of row numbers are in the place of the table's axis.
    """
    shape = tf.shape(is_local)
    between, after = [1] * (axis - batch_dims), [1] * (rank - axis - 1)
    extents = tf.concat([shape[:batch_dims], between, shape[batch_dims:], after], 0)
    return tf.reshape(is_local, extents)


def _with_slices(
    look_up: Callable[[tf.Tensor], tf.Tensor], numbers: tf.Tensor, whole: tuple[int, ...]
) -> Callable[[tf.Tensor], Any]:
    """Return a lookup whose gradient is slices with row numbers of the whole table."""

    def function(table: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.IndexedSlices:
            values = tf.reshape(upstream, [-1, *whole[1:]])
            count = numbers.shape.num_elements()
            values.set_shape([count, *whole[1:]])
            indices = tf.reshape(numbers, [-1])
            return tf.IndexedSlices(values, indices, tf.constant(whole, tf.int64))

        return look_up(table), gradient

    return function


def own_slices(slices: int, numbers: int) -> Rule:
    """Return a function that selects the operands of an update of rows for a rank's own rows.

    With them the kernel runs as on one device, on a shard of the variable: it changes the rows that
    the script's operator would change.

    Args:
        slices: the number of the input that has the slices.
        numbers: the number of the input that has their row numbers.
    """

    def operands(split: SplitOperator, inputs: Shards) -> Shards:
        world, derivation, axes = split.world, split.derivation, split.axes_of("row")
        rows = derivation.input_shapes[0][0]
        selected = [list(shards) for shards in inputs]
        for position, rank in enumerate(world.ranks):
            number = inputs[numbers][position]
            local, is_local = rows_of_own(number, world.mesh, rank, axes, rows)
            outside = tf.logical_or(number < 0, number >= rows)
            kept = tf.logical_or(is_local, outside)
            places = tf.where(outside, number, local)
            if number.shape.rank == 0:
                places, kept = places[tf.newaxis], kept[tf.newaxis]
            selected[numbers][position] = tf.boolean_mask(places, kept)
            if len(derivation.input_shapes[slices]):  # A scalar is the same for every row.
                rows_given = inputs[slices][position]
                if number.shape.rank == 0:
                    rows_given = rows_given[tf.newaxis]
                selected[slices][position] = tf.boolean_mask(rows_given, kept)
        return selected

    return operands
