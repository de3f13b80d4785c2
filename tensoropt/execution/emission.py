"""What the parts of an emitter share: what is emitted, how it is split, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from tensoropt.execution.edge import PlanSteps
from tensoropt.execution.emitted import Emitted
from tensoropt.execution.world import World
from tensoropt.graph.operator import Graph
from tensoropt.parallel.strategy import Strategy

__all__ = ["Emission"]


@dataclass(frozen=True, slots=True, eq=False)
class Emission:
    """One program while it is emitted.

    Attributes:
        graph: what is emitted.
        strategy: a configuration for each of its operators.
        world: the ranks emitted here.
        emitted: what is emitted so far.
        plan_steps: plans a resharding.
        target: TensorFlow graph emitted into.
    """

    graph: Graph
    strategy: Strategy
    world: World
    emitted: Emitted
    plan_steps: PlanSteps
    target: tf.Graph
