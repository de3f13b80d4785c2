"""The values that the parts of a stage's emitter share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.world.shard_table import ShardTable
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Graph
from tensoropt.parallel.strategy import Strategy

__all__ = ["ProgramContext"]


@dataclass(frozen=True, slots=True, eq=False)
class ProgramContext:
    """A stage's part of a program while it is emitted.

    Attributes:
        graph: the operators to emit.
        strategy: a configuration for each of them.
        world: the ranks emitted here.
        emitted: the operators that are emitted so far.
        plan_steps: plans a resharding.
        target: the TensorFlow graph to emit into.
        sizes: a shape that occurs in a run, by the shape with open extents.
    """

    graph: Graph
    strategy: Strategy
    world: World
    emitted: ShardTable
    plan_steps: PlanSteps
    target: tf.Graph
    sizes: Mapping[tuple[int, ...], tuple[int, ...]]

    @property
    def updates_wait(self) -> bool:
        """Whether updates wait until all gradients of their call are computed.

        Reference variables need this: a reader gets the value at the moment at which it runs.
        """
        return any(op.is_variable and op.type != "VarHandleOp" for op in self.graph)
