"""An edge between operators: resharding forward, and the gradient's own resharding backward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.execution.gradients.custom_gradients import differentiated_as
from tensoropt.execution.gradients.matrix_products import summed_as_one
from tensoropt.execution.world.slices import Numbers, PlanSteps, SlicesEdge
from tensoropt.execution.world.world import World
from tensoropt.parallel.layout import Slot
from tensoropt.parallel.resharding import ReshardStep, Step

__all__ = ["Collect", "PlanSteps", "dual_reshard", "moved_slices", "reshard_edge"]

Collect = Callable[[list[tf.Tensor], tuple[Step, ...], Callable[[], list[tf.Tensor]]], bool]
"""Whether a gradient is taken over, given its shards, its steps, and what else takes it back."""


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
    collect: Collect | None = None,
) -> list[tf.Tensor]:
    """Take a tensor from its producer's slot to its consumer's.

    The forward resharding is source.forward to target.forward. Where the edge carries a gradient,
    it is a function with a gradient of its own: target.gradient to source.gradient. (No
    collective has "its" adjoint: that depends on whether gradients are partial or replicated.)
    The gradient's gradient is the same edge turned round, since a tensor's layout and its
    gradient's are dual.

    Args:
        world: the ranks emitted here.
        shards: the tensor's shard on each of them; or the handle of a variable that has it, if
            nothing is to be resharded forward.
        shape: the tensor's global shape.
        source: slot at the producer.
        target: slot at the consumer.
        plan_steps: plans a resharding.
        label: names the operations.
        differentiated: whether gradients flow through this edge.
        stays_sparse: whether the gradient now being made has slices for this tensor in the script.
        looked_up: whether the consumers look up rows, so that they give slices.
        numbers: the row numbers, where there is one consumer.
        collect: takes dense gradients that are resharded.
    """
    dtype = _value_dtype(shards[0])
    forward = plan_steps(shape, dtype.name, source.forward, target.forward)
    if not (differentiated and (dtype.is_floating or dtype.is_complex)):
        return world.reshard(shards, forward, label) if forward else list(shards)
    backward = plan_steps(shape, dtype.name, target.gradient, source.gradient)
    # Slices number the rows of the whole tensor: where rows are split, TensorFlow may not make the
    # slices dense by itself, so the edge keeps a gradient function.
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
    return dual_reshard(
        world, shards, forward, backward, label, label + "/gradient", slices, collect
    )


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
    """Reshard values with their gradient, row numbers without."""
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
    """Shards after the forward steps, whose gradients go back by the backward steps.

    Args:
        world: the ranks emitted here.
        shards: one on each of them.
        forward: how the tensor gets to its consumer.
        backward: how its gradient comes back.
        label: names the forward resharding.
        gradient_label: names the backward one.
        slices: what becomes of gradients that are slices; by default they are made dense.
        collect: takes dense gradients that are resharded.
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

        def taken_back() -> list[tf.Tensor]:
            return dual_reshard(world, dense, backward, forward, gradient_label, label)

        if collect is not None and collect(dense, backward, taken_back):
            return [None] * len(dense)
        return taken_back()

    moved = world.reshard(shards, forward, label) if forward else list(shards)
    return differentiated_as(moved, shards, gradient)
