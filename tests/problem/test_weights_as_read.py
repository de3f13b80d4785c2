"""In the paper's space a weight lies as its operator reads it, and takes memory so, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tensoropt as tf
from benchmarks.training_step import TrainingStep, gradient_descent_step
from examples.models import Model, lstm_language_model, transformer
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.operator import Operator
from tensoropt.graph.tied_operators import leaders
from tensoropt.parallel.strategy import Strategy
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import PAPER, PLAIN, Space
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search.baselines import data_parallel
from tests.oracles.certificates.checker import Checker

tf.enable_graph_mode()

BATCH, DEVICES = 256, 4
CLUSTER = load_cluster("8-v100")
MESH = CLUSTER.mesh(DEVICES)
COST = ClusterCostModel(CLUSTER, MESH)


def lstm() -> Model:
    return lstm_language_model(hidden=64, layers=2, steps=4, vocabulary=32)


def tied_embedding() -> Model:
    return transformer(1, 64, 4, 256, 8, 8, 512)


def problem_of(step: TrainingStep, space: Space) -> GraphProblem:
    return graph_problem(
        AnnotatedGraph.of(step.graph, MESH, COST, step.batch_placeholders, step.reads, space)
    )


def reads_of_weights(problem: GraphProblem) -> Iterator[tuple[Operator, int]]:
    """The operators that read weights, and the numbers of these inputs."""
    tied = leaders(problem.graph)
    for operator in problem.graph:
        if operator.gradient is None and not problem.graph[tied[operator.name]].is_variable:
            for number, tensor in enumerate(operator.inputs):
                source = problem.graph[tensor.operator]
                if problem.graph[tied[source.name]].is_variable and source.gradient is None:
                    yield operator, number


@pytest.mark.parametrize(("build", "elsewhere"), [(lstm, ""), (tied_embedding, "GatherV2")])
def test_weights_lie_as_they_are_read_and_cost_what_the_checker_says(
    build: Callable[[], Model], elsewhere: str
) -> None:
    step = gradient_descent_step(build, BATCH)
    problem = problem_of(step, PAPER)
    graph = problem.graph
    assert not any(graph[group.leader].is_variable for group in problem.choices)
    checker = Checker(graph, MESH, COST, step.batch_placeholders, step.reads)
    rng = np.random.default_rng(0)
    for _ in range(4):
        numbers = [int(rng.integers(node.configurations)) for node in problem.problem.nodes]
        chosen = problem.configurations(numbers)
        checked = checker.cost(chosen)
        assert problem.problem.cost(numbers) == (checked.memory, checked.time)
        strategy = Strategy(graph, MESH, chosen, step.batch_placeholders)
        for reader, number in reads_of_weights(problem):
            if reader.type != elsewhere:  # a product with the table is more work than a lookup
                stored = strategy.output_slot(reader.inputs[number]).forward
                assert stored == strategy.input_slot(reader, number).forward


def test_sharded_storage_of_a_data_parallel_model_is_not_in_the_papers_space() -> None:
    step = gradient_descent_step(lstm, BATCH)
    parameters = 4 * step.parameters
    for space in (PAPER, PLAIN):
        problem = problem_of(step, space)
        strategy = data_parallel.solve(problem).strategies[0].tolist()
        sharded = [
            int(node.memory.argmin()) if problem.graph[group.leader].is_variable else number
            for number, group, node in zip(
                strategy, problem.choices, problem.problem.nodes, strict=True
            )
        ]
        held = sum(
            int(problem.costs[name].memory[number])
            for number, group in zip(sharded, problem.choices, strict=True)
            for name in group.members
            if problem.graph[name].is_variable
        )
        assert held == parameters if space is PAPER else held < parameters / 2
        # Stored in pieces or whole, each weight counts as large as it is read.
        assert problem.problem.cost(sharded)[0] >= parameters


def test_activations_of_an_unrolled_layer_are_offered_reuse_though_weights_are_larger() -> None:
    step = gradient_descent_step(
        lambda: lstm_language_model(hidden=512, layers=2, steps=4, vocabulary=32), 32
    )
    problem = problem_of(step, Space(reuse=True, sharded_storage=False))
    offered = [group for group in problem.choices if len(group.options.kept) > 1]
    assert {problem.graph[group.leader].type for group in offered} >= {"Sigmoid", "Tanh"}
    for group in offered:
        for name in group.weights:
            assert set(group.kept(name)) == {"both"}
