"""What one rank computes of an operator that ranks do together, for measuring it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tensoropt.cost.local_operator import LocalOperator
from tensoropt.errors import OptionError
from tensoropt.execution.rules import rule_of
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Exchange, Step

__all__ = ["emitted_alone"]


def emitted_alone(local: LocalOperator, mesh: Mesh, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The pieces of an operator's outputs on the first rank, as if the others had its sums.

    Raises:
        OptionError: if no rule spells the operator out, or one that does not only add up.
    """
    operator, derivation, configuration = local.operator, local.derivation, local.configuration
    rule = rule_of(operator, derivation, configuration, mesh)
    if rule is None:
        raise OptionError(f"what is emitted in parts has a rule. Got {operator.type}.")
    world = _AloneWorld(mesh)
    made = rule(world, operator, derivation, configuration, [[piece] for piece in inputs])
    return [pieces[0] for pieces in made]


class _AloneWorld:
    """One rank of a mesh: what is reduced over others is its own."""

    name = "alone"

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.ranks: tuple[int, ...] = (0,)
        self.network_seconds = 0.0

    def reshard(
        self, pieces: Sequence[tf.Tensor], steps: Sequence[Step], label: str
    ) -> list[tf.Tensor]:
        """See `tensoropt.execution.world.World`."""
        for step in steps:
            if isinstance(step, Exchange) or step.kind != "allreduce":
                raise OptionError(f"alone, a rank can only add up. Got {step} for {label!r}.")
        return list(pieces)

    def share(self, value: npt.NDArray[np.generic], axes: Sequence[int]) -> npt.NDArray[np.generic]:
        """See `tensoropt.execution.world.World`: nothing is fed."""
        del axes
        return value
