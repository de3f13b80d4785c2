"""The time of a step, part by part, against what is emitted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from benchmarks.equality import Script, choices_of, draw, executor_of, model_script
from benchmarks.equality.scripts import mlp
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.execution.world import SingleProcessWorld
from tensoropt.parallel.choices import configurations_of
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.parallel.strategy import Strategy
from tensoropt.plan.step_time import step_time
from tensoropt.search.gradient_sums import gradient_sums

assert tensoropt.gradients is not None  # graph mode on, gradients recorded


class Counting(SingleProcessWorld):
    """Counts reshardings that communicate."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__(mesh)
        self.calls = 0

    def reshard(
        self, pieces: Sequence[tf.Tensor], steps: Sequence[ReshardStep], label: str
    ) -> list[tf.Tensor]:
        self.calls += not all(step.is_local for step in steps)
        return super().reshard(pieces, steps, label)


def counted(script: Script, strategy: Strategy, cost: ClusterCostModel) -> int:
    """The collectives that the script's training step has when it is emitted."""
    world = Counting(strategy.mesh)
    executor = executor_of(
        script.graph, world.mesh, strategy.configurations, cost.collective_nanoseconds, world=world
    )
    executor.program([], [script.train], script.shapes)
    executor.close()
    return world.calls


@pytest.mark.parametrize("model", ["mlp", "lstm", "transformer"])
def test_a_step_has_the_collectives_that_are_counted(model: str) -> None:
    script = mlp() if model == "mlp" else model_script(model, tf.float32, 1)
    graph = script.imported()
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(2)
    cost = ClusterCostModel(cluster, mesh)
    choices = choices_of(script, mesh, frozenset())
    random = np.random.default_rng(3)
    for _ in range(2):
        numbers = draw(graph, choices, mesh, random).numbers
        strategy = Strategy(graph, mesh, configurations_of(choices, numbers))
        time = step_time(strategy, cost)
        assert time.calls == counted(script, strategy, cost)
        parts = time.operators + time.sums + time.copies + time.network + time.coordination
        assert time.total == parts + time.start
        assert (time.sums > 0) == bool(gradient_sums(graph))


def test_one_device_has_neither_collectives_nor_copies() -> None:
    script = mlp()
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(1)
    time = step_time(Strategy(script.imported(), mesh, {}), ClusterCostModel(cluster, mesh))
    assert (time.calls, time.network, time.copies, time.coordination) == (0, 0, 0, 0)
    assert time.operators > 0
