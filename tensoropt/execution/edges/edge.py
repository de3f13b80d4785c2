"""An edge between operators: one resharding of the tensor, another one of its gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.execution.gradient_functions.custom_gradients import differentiated_as
from tensoropt.execution.gradient_functions.matrix_products import summed_as_one
from tensoropt.execution.world.slices import Numbers, PlanSteps, SlicesEdge
from tensoropt.execution.world.world import World
from tensoropt.parallel.layout import Slot
from tensoropt.parallel.resharding import ReshardStep, Step

__all__ = ["Collect", "PlanSteps", "dual_reshard", "moved_slices", "reshard_edge"]

Collect = Callable[[list[tf.Tensor], tuple[Step, ...], Callable[[], list[tf.Tensor]]], bool]
"""A function that may take over a gradient, and says whether it did.

Its arguments are the gradient's shards, the steps back to the producer, and a function that takes
these steps.
"""


def reshard_edge(
    world: World,
    shards: Sequence[tf.Tensor],
    shape: Sequence[int],
    source: Slot,
    target: Slot,
    plan_steps: PlanSteps,
    label: str,
    differentiated: bool = True,
    stays_sparse: Callable[[], bool] = lambda: False,
    looked_up: bool = False,
    numbers: Numbers | None = None,
    collect: Callable[[], Collect] | None = None,
) -> list[tf.Tensor]:
    """Reshard a tensor from its producer's slot to its consumer's.

    The tensor is resharded from source.forward to target.forward. If the edge carries a gradient,
    the edge is a function with a gradient of its own, which reshards from target.gradient to
    source.gradient. (A collective has no fixed adjoint: it depends on whether gradients are
    partial or replicated.) The gradient of this gradient is the same edge in the first direction.

    Args:
        world: the ranks emitted here.
        shards: the tensor's shard on each of these ranks. If the tensor itself is not resharded,
            these may be handles of the variable that stores it.
        shape: the tensor's global shape.
        source: the slot at the producer.
        target: the slot at the consumer.
        plan_steps: plans a resharding.
        label: names the operations.
        differentiated: whether gradients flow through this edge.
        stays_sparse: whether the script's gradient by this tensor, in the call that is now
            differentiated, is sparse.
        looked_up: whether the consumers look up rows, so that their gradients are slices.
        numbers: the row numbers that the consumer looks up, if there is only one consumer.
        collect: called if gradients are to be resharded; returns what may take over dense ones.
    """
    dtype = _value_dtype(shards[0])
    forward = plan_steps(shape, dtype.name, source.forward, target.forward)
    if not (differentiated and (dtype.is_floating or dtype.is_complex)):
        return world.reshard(shards, forward, label) if forward else list(shards)
    backward = plan_steps(shape, dtype.name, target.gradient, source.gradient)
    # Slices number the rows of the whole tensor. If rows are split, TensorFlow must not make slices
    # dense with these numbers, so the edge needs a gradient function even without a resharding.
    renumbers = looked_up and bool(target.gradient.dims[0])
    if not forward and not backward and not renumbers:
        return list(shards)
    slices = SlicesEdge(
        world,
        tuple(shape),
        target.gradient,
        source.gradient,
        plan_steps,
        f"{label}/gradient",
        functools.partial(moved_slices, world),
        stays_sparse,
        numbers,
    )
    taken = collect() if collect is not None and backward else None
    return dual_reshard(world, shards, forward, backward, label, f"{label}/gradient", slices, taken)


def _value_dtype(shard: tf.Tensor) -> tf.DType:
    if shard.dtype == tf.resource:
        return tf.as_dtype(shard.op.get_attr("dtype"))
    return shard.dtype.base_dtype


def moved_slices(
    world: World,
    shards: Sequence[tf.Tensor],
    forward: tuple[ReshardStep, ...],
    backward: tuple[ReshardStep, ...],
    label: str,
) -> list[tf.Tensor]:
    """Reshard values, and backward their gradients; row numbers have no gradients."""
    if not shards[0].dtype.is_floating and not shards[0].dtype.is_complex:
        return world.reshard(shards, forward, label)
    return dual_reshard(world, shards, forward, backward, label, f"{label}/gradient")


def dual_reshard(
    world: World,
    shards: Sequence[tf.Tensor],
    forward: tuple[Step, ...],
    backward: tuple[Step, ...],
    label: str,
    gradient_label: str,
    slices: SlicesEdge | None = None,
    collect: Collect | None = None,
) -> list[tf.Tensor]:
    """Reshard a tensor by the forward steps, and its gradient by the backward steps.

    Args:
        world: the ranks emitted here.
        shards: the tensor's shard on each rank.
        forward: the steps from the producer to the consumer.
        backward: the gradient's steps from the consumer to the producer.
        label: names the operations of the forward steps.
        gradient_label: names the operations of the backward steps.
        slices: reshards gradients that are slices; by default slices are made dense.
        collect: may take over dense gradients that are to be resharded.
    """

    def gradient(*upstream: Any) -> list[Any]:
        if slices is not None and all(isinstance(p, tf.IndexedSlices) for p in upstream):
            arrived = slices.arrived(upstream)
            if arrived is not None:
                return arrived
            upstream = tuple(slices.spread_out(upstream))
        dense = [tf.convert_to_tensor(shard) for shard in upstream]
        if collect is not None:
            dense = [summed_as_one(shard) for shard in dense]
        if not backward:
            return dense

        def resharded() -> list[tf.Tensor]:
            return dual_reshard(world, dense, backward, forward, gradient_label, label)

        if collect is not None and collect(dense, backward, resharded):
            return [None] * len(dense)
        return resharded()

    moved = world.reshard(shards, forward, label) if forward else list(shards)
    return differentiated_as(moved, shards, gradient)
