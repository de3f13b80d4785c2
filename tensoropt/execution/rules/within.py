"""The signature of rules, and the collectives inside of operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf

from tensoropt.execution.edges.edge import dual_reshard
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.tdl import Derivation

__all__ = ["Rule", "Shards", "SplitOperator", "allreduce", "total"]

Shards = list[list[tf.Tensor]]
"""For each input or output, its shard on every rank of the world."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitOperator:
    """An operator under its configuration, on the ranks that are emitted here."""

    world: World
    operator: Operator
    derivation: Derivation
    configuration: Configuration

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        """The mesh axes that split a reduced index."""
        return tuple(
            axis
            for index, axes in zip(self.derivation.indices, self.configuration.splits, strict=True)
            if index.reducer is not None
            for axis in axes
        )

    def axes_of(self, name: str) -> tuple[int, ...]:
        """The mesh axes that split the index of a name."""
        return self.configuration.splits[self.derivation.index(name)]


Rule = Callable[[SplitOperator, Shards], Shards]


def allreduce(
    world: World, shards: Sequence[tf.Tensor], axes: tuple[int, ...], reducer: str, label: str
) -> list[tf.Tensor]:
    """Reduce shards over ``axes``, on every rank, without a gradient."""
    return world.reshard(
        [tf.stop_gradient(p) for p in shards], (_step(shards, axes, reducer),), label
    )


def total(
    world: World,
    shards: Sequence[tf.Tensor],
    axes: tuple[int, ...],
    label: str,
    *,
    gradient_is_partial: bool,
) -> list[tf.Tensor]:
    """Sum shards over ``axes``, on every rank, with a gradient.

    Args:
        world: the ranks emitted here.
        shards: each rank's term of the sum.
        axes: the mesh axes over which to sum.
        label: names the operations.
        gradient_is_partial: whether operators that read the sum are split over these axes, so that
            each rank has a share of the gradient. Otherwise each rank has the whole gradient.
    """
    step = _step(shards, axes, "sum")
    backward = (step,) if gradient_is_partial else ()
    return dual_reshard(world, shards, (step,), backward, label, f"{label}/gradient")


def _step(shards: Sequence[tf.Tensor], axes: tuple[int, ...], reducer: str) -> ReshardStep:
    whole = Layout.replicated(len(shards[0].shape))
    return ReshardStep("allreduce", axes, Layout(whole.dims, axes, reducer), whole, reducer=reducer)
