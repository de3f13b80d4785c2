"""An edge between operators: resharding forward, and the gradient's own resharding backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.execution.slices import collect_slices
from tensoropt.execution.world import World
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.resharding import ReshardStep, Step

__all__ = ["PlanSteps", "dual_reshard", "reshard_edge"]

PlanSteps = Callable[[Sequence[int], str, Any, Any], tuple[ReshardStep, ...]]
"""(shape, dtype, source layout, target layout) to steps."""


def reshard_edge(
    world: World,
    pieces: Sequence[tf.Tensor],
    shape: Sequence[int],
    source: Slot,
    target: Slot,
    plan_steps: PlanSteps,
    label: str,
    differentiated: bool = True,
) -> list[tf.Tensor]:
    """Take a tensor from its producer's slot to its consumer's.

    The forward resharding is source.forward to target.forward. Where the edge carries a gradient,
    it is a function with a gradient of its own: target.gradient to source.gradient. (No
    collective has "its" adjoint: that depends on whether gradients are partial or replicated.)
    The gradient's gradient is the same edge turned round, since a tensor's layout and its
    gradient's are dual.

    Args:
        world: the ranks emitted here.
        pieces: the tensor's piece on each of them.
        shape: the tensor's global shape.
        source: slot at the producer.
        target: slot at the consumer.
        plan_steps: plans a resharding.
        label: names the operations.
        differentiated: whether gradients flow through this edge.
    """
    dtype = pieces[0].dtype.base_dtype
    forward = plan_steps(shape, dtype.name, source.forward, target.forward)
    if not (differentiated and (dtype.is_floating or dtype.is_complex)):
        return world.reshard(pieces, forward, label) if forward else list(pieces)
    backward = plan_steps(shape, dtype.name, target.gradient, source.gradient)
    if not forward and not backward:
        return list(pieces)
    rows = target.gradient if source.gradient.is_replicated else None
    return dual_reshard(world, pieces, forward, backward, label, label + "/gradient", rows)


def dual_reshard(
    world: World,
    pieces: Sequence[tf.Tensor],
    forward: tuple[Step, ...],
    backward: tuple[Step, ...],
    label: str,
    gradient_label: str,
    rows: Layout | None = None,
) -> list[tf.Tensor]:
    def function(*inputs: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[Any]]]:
        outputs = world.reshard(inputs, forward, label) if forward else list(inputs)

        def gradient(*upstream: Any) -> list[Any]:
            if not backward:
                if forward:
                    upstream = tuple(tf.convert_to_tensor(piece) for piece in upstream)
                return list(upstream)
            if rows is not None and all(isinstance(p, tf.IndexedSlices) for p in upstream):
                whole = collect_slices(world, upstream, rows, gradient_label)
                if whole is not None:
                    return whole
            dense = [tf.convert_to_tensor(piece) for piece in upstream]
            return dual_reshard(world, dense, backward, forward, gradient_label, label)

        return [tf.identity(output) for output in outputs], gradient

    moved = tf.custom_gradient(function)(*pieces)
    if not isinstance(moved, (list, tuple)):
        moved = [moved]
    if len(moved) != len(pieces):
        raise GraphError(f"an edge returns one piece per rank. Got {len(moved)} on edge {label!r}.")
    return list(moved)
