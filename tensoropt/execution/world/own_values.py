"""Values that each rank computes from a batch of its own, on all ranks."""

from __future__ import annotations

import tensorflow as tf

from tensoropt.execution.world.world import World
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep

__all__ = ["of_all_ranks"]


def of_all_ranks(world: World, value: tf.Tensor, label: str) -> tf.Tensor:
    """Return the values of all ranks, one after another along a new first dimension.

    Args:
        world: the ranks, each in a process of its own.
        value: this rank's value; its shape is the same on all ranks.
        label: see `World.reshard`.
    """
    axes = tuple(range(len(world.mesh.axes)))
    rank = len(value.shape) + 1
    source = Layout((axes, *[()] * (rank - 1)))
    step = ReshardStep("allgather", axes, source, Layout.replicated(rank), from_dim=0)
    (values,) = world.reshard([value[tf.newaxis]], (step,), f"{label}/of_all_ranks")
    return values
