"""A BERT whose attention mask feeds every layer: few eliminations are heuristic, and are counted;
and configurations are counted before anything is left out."""

from __future__ import annotations

import pytest

import tensoropt as tf
from benchmarks.search.bert import bert
from benchmarks.search.steps import cluster_of
from tensoropt.cost.model import ClusterCostModel
from tensoropt.frontend.inputs.shapes import fed_shapes, training_roots
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.tensor_reuse import PAPER
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.search import frontier_tracking
from tensoropt.search.limits import DEFAULT_LIMITS

LAYERS = 3
DEVICES = 4


@pytest.fixture(scope="module")
def step() -> GraphProblem:
    script = tf.Graph()
    with script.as_default():
        made = bert(LAYERS)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(made.loss)
        fed, batched = fed_shapes(script, 16 * DEVICES, None)
        graph = import_graph(script, training_roots(script, [train]), fed)
    cluster = cluster_of(DEVICES)
    mesh = cluster.mesh(DEVICES)
    names = {operator.name for operator in graph}
    cost = ClusterCostModel(cluster, mesh)
    return graph_problem(AnnotatedGraph.of(graph, mesh, cost, batched & names, space=PAPER))


def test_the_mask_has_a_reader_in_every_layer(step: GraphProblem) -> None:
    names = [node.name for node in step.problem.nodes]
    mask = names.index("bert/mul")
    readers = {
        edge.source + edge.target - mask
        for edge in step.problem.edges
        if mask in (edge.source, edge.target)
    }
    in_layers = {
        name.split("/")[1] for name in (names[reader] for reader in readers) if "layer" in name
    }
    assert in_layers == {f"layer{number + 1}" for number in range(LAYERS)}


def test_at_most_two_eliminations_are_heuristic_and_are_said(step: GraphProblem) -> None:
    found = frontier_tracking(step.problem, bounds=False)
    assert found.eliminations["heuristic"] <= 2
    assert found.exact == (found.eliminations["heuristic"] == 0)
    bounded = frontier_tracking(step.problem)
    gap = 1 + DEFAULT_LIMITS.closing_gap
    assert bounded.is_within(DEFAULT_LIMITS.closing_gap)
    assert bounded.eliminations["heuristic"] == 0
    for memory, time, _ in found:
        assert ((bounded.memory <= gap * memory) & (bounded.time <= gap * time)).any()


def test_configurations_are_all_ways_to_split(step: GraphProblem) -> None:
    """The splits of an operator whose indices can all be split: any index, or none, by axis."""
    checked = 0
    axes = len(step.mesh.axes)
    for group, node in zip(step.choices, step.problem.nodes, strict=True):
        for name in group.members:
            indices = step.derivations[name].indices
            if not all(index.splittable and index.extent % DEVICES == 0 for index in indices):
                continue
            if step.derivations[name].op_type in ("Placeholder", "VariableV2"):
                continue
            checked += 1
            assert node.configurations >= (len(indices) + 1) ** axes, name
    assert checked > 50
