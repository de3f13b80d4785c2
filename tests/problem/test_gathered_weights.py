"""A weight that is stored in pieces and read whole takes its whole size, whoever reads it."""

from __future__ import annotations

import itertools

import tensorflow as tf

import tensoropt
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.frontend.planning.training_step import imported_step
from tensoropt.graph.from_tensorflow import backward_reads
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.strategy import Strategy
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import GraphProblem, graph_problem

v1 = tf.compat.v1
DEVICES, ROWS, WIDTH = 2, 64, 16
WHOLE = ROWS * WIDTH * 4

tensoropt.enable_graph_mode()


def lookup() -> GraphProblem:
    """Rows of a table, whose gradient reads their numbers and not the table."""
    script = tf.Graph()
    with script.as_default():
        ids = v1.placeholder(tf.int32, [8], name="ids")
        table = v1.get_variable("table", [ROWS, WIDTH], initializer=v1.zeros_initializer())
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
        (slope,) = tensoropt.gradients(loss, [table])
        table.scatter_sub(slope)
        root = script.get_operations()[-1].name
        graph = imported_step(script, [root], {"ids": (8,)})
        reads = backward_reads(script, graph)
    cluster = load_cluster("2x8-v100")
    mesh = cluster.mesh(DEVICES)
    cost = ClusterCostModel(cluster, mesh, "execution")
    return graph_problem(AnnotatedGraph.of(graph, mesh, cost, frozenset({"ids"}), reads))


def test_a_table_that_no_gradient_reads_counts_as_it_is_looked_up() -> None:
    problem = lookup()
    graph, mesh = problem.graph, problem.mesh
    (reader,) = (op for op in graph if op.type in ("ResourceGather", "GatherV2"))
    in_pieces = 0
    for numbers in itertools.product(*(range(len(each.options)) for each in problem.choices)):
        strategy = Strategy(graph, mesh, problem.configurations(numbers), frozenset({"ids"}))
        stored = strategy.output_slot(TensorName("table", 0)).forward
        read = strategy.input_slot(reader, 0).forward
        if any(stored.dims) and not any(read.dims):
            in_pieces += 1
            assert problem.problem.cost(numbers)[0] >= WHOLE
    assert in_pieces
