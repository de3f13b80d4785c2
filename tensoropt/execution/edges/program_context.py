"""What the parts of an emitter share: the program, its strategy, and the graph it goes into."""

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
    """One program while it is emitted.

    Attributes:
        graph: what is emitted.
        strategy: a configuration for each of its operators.
        world: the ranks emitted here.
        emitted: what is emitted so far.
        plan_steps: plans a resharding.
        target: TensorFlow graph emitted into.
        sizes: for shapes with open extents one that occurs.
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
        """Whether no update may run before all gradients of its call are made.

        So it is where a variable is a reference: what reads it finds the value of that moment.
        """
        return any(op.is_variable and op.type != "VarHandleOp" for op in self.graph)
