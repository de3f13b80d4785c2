"""The time of a step, part by part, against what is emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.execution.world.world import SingleProcessWorld
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.from_tensorflow import backward_reads
from tensoropt.parallel.choices.choices import configurations_of
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.prices.step_time import step_time
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import Space
from tensoropt.problem.from_graph import graph_problem
from tensoropt.problem.operators.reader_gradient_sums import reader_gradient_sums
from tensoropt.search import frontier_tracking
from tests.oracles.equality import (
    Script,
    choices_of,
    draw,
    draw_kept,
    executor_of,
    many_lookups,
    model_script,
    planned_of,
)
from tests.oracles.equality.scripts import mlp
from tests.proofs import proof

tensoropt.enable_graph_mode()


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


def unshared() -> Script:
    """A step in which no tensor has two readers that want it in layouts of their own."""
    graph = tf.Graph()
    with graph.as_default():
        values = tf.compat.v1.placeholder(tf.float32, [64, 256], name="images")
        for layer in range(2):
            weights = tf.compat.v1.get_variable(f"weights{layer}", [256, 256], tf.float32)
            values = tf.math.softplus(tf.matmul(values, weights), name=f"softplus{layer}")
        loss = tf.reduce_mean(values)
        train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    return Script(graph, train.name, loss.name, ({"images": np.zeros((64, 256), np.float32)},))


@pytest.mark.parametrize("model", ["mlp", "many_lookups", "lstm", "transformer"])
def test_a_step_has_the_collectives_that_are_counted(model: str) -> None:
    made = {"mlp": mlp, "many_lookups": many_lookups}
    script = made[model]() if model in made else model_script(model, tf.float32, 1)
    graph = script.imported()
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(2)
    cost = ClusterCostModel(cluster, mesh)
    choices = choices_of(script, mesh, frozenset())
    random = np.random.default_rng(3)
    for _ in range(2 if model in made else 1):
        numbers = draw(graph, choices, mesh, random).numbers
        strategy = Strategy(graph, mesh, configurations_of(choices, numbers))
        time = step_time(strategy, cost)
        assert time.calls == counted(script, strategy, cost)
        parts = time.operators + time.sums + time.copies + time.network + time.coordination
        assert time.total == parts + time.start
        assert (time.sums > 0) == bool(reader_gradient_sums(graph, differentiated_inputs(graph)))


@pytest.mark.parametrize("model", ["mlp", proof("wide_resnet"), proof("transformer")])
def test_a_step_has_the_collectives_that_are_counted_whatever_is_kept(model: str) -> None:
    script = mlp() if model == "mlp" else model_script(model, tf.float32, 1)
    graph = script.imported()
    reads = backward_reads(script.graph, graph)
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(2)
    cost = ClusterCostModel(cluster, mesh)
    choices = choices_of(script, mesh, frozenset())
    random = np.random.default_rng(4)
    for share in (0.5, 1.0) if model == "mlp" else (1.0,):
        numbers = draw(graph, choices, mesh, random).numbers
        kept = draw_kept(choices, share, random)
        strategy = Strategy(graph, mesh, planned_of(script, mesh, numbers, frozenset(), kept))
        plain = Strategy(graph, mesh, planned_of(script, mesh, numbers, frozenset()))
        time = step_time(strategy, cost, reads=reads)
        assert time.calls == counted(script, strategy, cost)
        assert time.total > step_time(plain, cost, reads=reads).total
        assert step_time(plain, cost, reads=reads) == step_time(plain, cost)


def test_points_of_a_frontier_take_what_their_steps_do() -> None:
    # Where every tensor has one reader and calls cost nothing, the search and a step's count
    # price the same.
    script = unshared()
    graph = script.imported()
    reads = backward_reads(script.graph, graph)
    cluster = replace(load_cluster("8-v100"), collective_overhead_seconds=0.0)
    mesh = cluster.mesh(2)
    cost = ClusterCostModel(cluster, mesh, "execution")
    space = Space(reuse=True, recompute=True, smallest_share=0.0)
    batched = frozenset({"images"})
    problem = graph_problem(AnnotatedGraph.of(graph, mesh, cost, batched, reads, space))
    found = frontier_tracking(problem.problem)
    ways = set()
    for time, numbers in zip(found.time, found.strategies, strict=True):
        configurations = problem.configurations(numbers.tolist())
        ways |= {configuration.kept for configuration in configurations.values()}
        strategy = Strategy(graph, mesh, configurations, batched)
        assert step_time(strategy, cost, reads=reads).total == time
    assert {"both", "recomputed"} < ways


def test_one_device_has_neither_collectives_nor_copies() -> None:
    script = mlp()
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(1)
    time = step_time(Strategy(script.imported(), mesh, {}), ClusterCostModel(cluster, mesh))
    assert (time.calls, time.network, time.copies, time.coordination) == (0, 0, 0, 0)
    assert time.operators > 0
