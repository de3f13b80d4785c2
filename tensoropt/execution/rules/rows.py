"""Tables split by rows: each rank looks up, and updates, the rows that it stores.

A row number outside the whole table stays one on every rank, so that the kernel's own check finds
it: nothing is looked up as zeros that one device would refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensoropt.execution.rules.within import Shards, axes_of
from tensoropt.execution.world.slices import rows_of_own
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Operator
from tensoropt.parallel.any_size import SizeError
from tensoropt.parallel.configuration import Configuration, input_slot
from tensoropt.parallel.sparse import looks_up_rows
from tensoropt.tdl import Derivation

__all__ = ["gather", "own_slices"]


def gather(
    world: World,
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    inputs: Shards,
) -> Shards:
    """Rows that a rank has, zeros for those of others: a partial sum over the ranks.

    The table may come as a variable's handle, which no copy of it is read through.
    """
    if -1 in derivation.input_shapes[0]:
        raise SizeError(f"{operator.name!r} looks up rows of a table whose size is open.")
    tables, numbers = inputs[:2]
    axes = axes_of(derivation, configuration, "row")
    shape = input_slot(derivation, configuration, 0).forward.local_shape(
        derivation.input_shapes[0], world.mesh
    )
    axis, batch_dims = _axis_and_batch(operator)
    rows = derivation.input_shapes[0][axis]
    found = []
    for rank, table, number in zip(world.ranks, tables, numbers, strict=True):
        own, mine = rows_of_own(number, world.mesh, rank, axes, rows)
        outside = tf.logical_or(number < 0, number >= rows)
        place = tf.where(mine, own, tf.where(outside, number, tf.zeros_like(own)))

        def look_up(
            table: tf.Tensor,
            place: tf.Tensor = place if axes else number,
            mine: tf.Tensor | None = mine if axes else None,
        ) -> tf.Tensor:
            shard = _local(operator, table, place, axis, batch_dims, shape)
            if mine is None:
                return shard
            return tf.where(_mask(mine, axis, batch_dims, len(shape)), shard, 0)

        if looks_up_rows(operator, 0):
            whole = (rows, *shape[1:])
            found.append(tf.custom_gradient(_with_slices(look_up, number, whole))(table))
        else:
            found.append(look_up(table))
    return [found]


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


def _mask(mine: tf.Tensor, axis: int, batch_dims: int, rank: int) -> tf.Tensor:
    """Shaped as the output: the numbers' own dimensions in place of the table's axis."""
    shape = tf.shape(mine)
    between, after = [1] * (axis - batch_dims), [1] * (rank - axis - 1)
    return tf.reshape(mine, tf.concat([shape[:batch_dims], between, shape[batch_dims:], after], 0))


def _with_slices(
    look_up: Callable[[tf.Tensor], tf.Tensor], numbers: tf.Tensor, whole: tuple[int, ...]
) -> Callable[[tf.Tensor], Any]:
    """A lookup whose gradient has all rows under their numbers in the whole table."""

    def function(table: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.IndexedSlices:
            values = tf.reshape(upstream, [-1, *whole[1:]])
            count = numbers.shape.num_elements()
            values.set_shape([count, *whole[1:]])
            indices = tf.reshape(numbers, [-1])
            return tf.IndexedSlices(values, indices, tf.constant(whole, tf.int64))

        return look_up(table), gradient

    return function


def own_slices(slices: int, numbers: int) -> Callable[..., Shards]:
    """For an update of rows: the operands with which the kernel updates a rank's own.

    The kernel then runs as on one device, on a shard of the variable: it touches the rows that
    the script's would touch.

    Args:
        slices: number of the input that has the slices.
        numbers: and of the one that has their row numbers.
    """

    def operands(
        world: World,
        operator: Operator,
        derivation: Derivation,
        configuration: Configuration,
        inputs: Shards,
    ) -> Shards:
        del operator
        axes = axes_of(derivation, configuration, "row")
        rows = derivation.input_shapes[0][0]
        given = [list(shards) for shards in inputs]
        for position, rank in enumerate(world.ranks):
            number = inputs[numbers][position]
            own, mine = rows_of_own(number, world.mesh, rank, axes, rows)
            outside = tf.logical_or(number < 0, number >= rows)
            kept = tf.logical_or(mine, outside)
            places = tf.where(outside, number, own)
            if number.shape.rank == 0:
                places, kept = places[tf.newaxis], kept[tf.newaxis]
            given[numbers][position] = tf.boolean_mask(places, kept)
            if len(derivation.input_shapes[slices]):  # one number goes to every row as it is
                rows_given = inputs[slices][position]
                if number.shape.rank == 0:
                    rows_given = rows_given[tf.newaxis]
                given[slices][position] = tf.boolean_mask(rows_given, kept)
        return given

    return operands
