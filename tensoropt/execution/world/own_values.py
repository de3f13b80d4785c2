"""Values that each rank computes from a batch of its own, on all ranks."""

from __future__ import annotations

import tensorflow as tf

from tensoropt.execution.world.world import World
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep

__all__ = ["of_all_ranks", "step_of_all_ranks"]


def of_all_ranks(world: World, value: tf.Tensor, label: str) -> tf.Tensor:
    """Return the values of all ranks, one after another along a new first dimension.

    Args:
        world: the ranks, each in a process of its own.
        value: this rank's value; its shape is the same on all ranks.
        label: see `World.reshard`.
    """
    step = step_of_all_ranks(world.mesh, len(value.shape) + 1)
    (values,) = world.reshard([value[tf.newaxis]], (step,), f"{label}/of_all_ranks")
    return values


def step_of_all_ranks(mesh: Mesh, rank: int) -> ReshardStep:
    """The collective of `of_all_ranks`.

    Args:
        mesh: the ranks.
        rank: the number of dimensions of its result.
    """
    axes = tuple(range(len(mesh.axes)))
    source = Layout((axes, *[()] * (rank - 1)))
    return ReshardStep("allgather", axes, source, Layout.replicated(rank), from_dim=0)
