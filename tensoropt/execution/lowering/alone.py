"""The kernels of steps, emitted on one rank to measure their time."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tensoropt.cost.measuring.measure_operators import Lowering, stored_tensor
from tensoropt.cost.operator_time import LocalOperator
from tensoropt.errors import OptionError
from tensoropt.execution.gradient_functions.matrix_products import GRADIENTS
from tensoropt.execution.rules import SplitOperator, rule_of
from tensoropt.execution.world.world import SingleProcessWorld
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Exchange, Step, shape_after

__all__ = ["AS_IN_STEPS", "emitted_alone"]


def emitted_alone(local: LocalOperator, mesh: Mesh, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Emit an operator on the first rank of a mesh, as if all ranks had the same inputs.

    Args:
        local: the operator and its configuration.
        mesh: the devices.
        inputs: the shards of the operator's inputs on the first rank.

    Returns:
        The shards of the operator's outputs.

    Raises:
        OptionError: if the operator has no rule, or its rule does more than add up, gather and
            exchange halos.
    """
    operator, derivation, configuration = local.operator, local.derivation, local.configuration
    rule = rule_of(operator, derivation, configuration, mesh)
    if rule is None:
        raise OptionError(f"an operator emitted on one rank has a rule. Got {operator.type}.")
    world = _AloneWorld(mesh)
    split = SplitOperator(world, operator, derivation, configuration)
    outputs = rule(split, [[shard] for shard in inputs])
    return [shards[0] for shards in outputs]


class _AloneWorld(SingleProcessWorld):
    """One rank of a mesh, as if all ranks had the same shards, and received halos at once.

    A window is a tensor that is there already, and so is the gradient that comes back from it: the
    price of an exchange includes their copies.
    """

    def __init__(self, mesh: Mesh) -> None:
        super().__init__(mesh)
        self.ranks = (0,)

    def reshard(
        self, shards: Sequence[tf.Tensor], steps: Sequence[Step], label: str
    ) -> list[tf.Tensor]:
        """See `World.reshard`."""
        for step in steps:
            if isinstance(step, Exchange):
                shards = [_received(shard, step, self.mesh) for shard in shards]
                continue
            if step.kind not in ("allreduce", "allgather"):
                raise OptionError(
                    "a rule that is emitted on one rank only adds up, gathers and exchanges halos. "
                    f"Got {step} for {label!r}."
                )
            if step.kind == "allgather":
                count = self.mesh.pieces(step.axes)
                shards = [tf.concat([shard] * count, step.from_dim) for shard in shards]
        return list(shards)


def _received(shard: tf.Tensor, step: Exchange, mesh: Mesh) -> tf.Tensor:
    """Return a tensor of the shape that an exchange gives a shard, once the shard is computed."""
    with tf.control_dependencies([shard]):
        return stored_tensor(shape_after(step, mesh, shard.shape.as_list()), shard.dtype)


AS_IN_STEPS = Lowering(emitted_alone, GRADIENTS)
"""Operators with a rule, and gradients of their own, as steps run them."""
