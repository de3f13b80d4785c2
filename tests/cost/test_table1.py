"""The paper's memory estimates, Table 1, with its model of memory."""

from __future__ import annotations

import pytest

import tensoropt as tf
from examples.models import vgg16
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.frontend.inputs.shapes import fed_shapes
from tensoropt.graph.from_tensorflow import backward_reads, import_graph
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem

tf.enable_graph_mode()


def test_vgg16_at_batch_256_takes_30_gb_from_half_a_gb_of_parameters() -> None:
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(1)
    with tf.Graph().as_default() as script:
        step = tf.GradientDescentOptimizer(0.1).minimize(vgg16().loss)
        shapes, _ = fed_shapes(script, 256, None)
        graph = import_graph(script, [step.name], shapes)
        reads = backward_reads(script, graph)
    paper = graph_problem(AnnotatedGraph.of(graph, mesh, ClusterCostModel(cluster, mesh, "paper")))
    variables = sum(int(paper.costs[op.name].memory[0]) for op in graph if op.is_variable)
    everything = sum(int(costs.memory[0]) for costs in paper.costs.values())
    assert variables / 2**30 == pytest.approx(0.52, rel=0.01)
    assert everything / 1e9 == pytest.approx(30, rel=0.05)
    # Running takes less: activations that no gradient reads are not kept, gradients are.
    running = ClusterCostModel(cluster, mesh, "execution")
    execution = graph_problem(AnnotatedGraph.of(graph, mesh, running, frozenset(), reads))
    kept = sum(int(costs.memory[0]) for costs in execution.costs.values())
    assert 2 * variables < kept < 0.6 * everything


def test_gradients_say_what_they_read_in_any_scope() -> None:
    with tf.Graph().as_default() as script:
        with tf.name_scope("outer"):
            x = tf.placeholder(tf.float32, [4, 4], name="x")
            w = tf.get_variable("w", [4, 4])
            product = tf.matmul(x, w, name="product")
            active = tf.nn.relu(product, name="active")
            loss = tf.reduce_sum(tf.tanh(active, name="bent"))
        step = tf.GradientDescentOptimizer(0.1).minimize(loss)
        graph = import_graph(script, [step.name], {"outer/x": (4, 4)})
        reads = backward_reads(script, graph)
    assert reads.inputs == {"outer/product": (0,)}
    assert reads.outputs == {"outer/active": (0,), "outer/bent": (0,)}
    assert {str(tensor) for tensor in reads.kept(graph)} == {
        "outer/x:0",
        "outer/active:0",
        "outer/bent:0",
    }
