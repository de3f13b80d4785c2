"""The problem of a recurrence: edges that are alike are one, and cost what they do apart."""

from __future__ import annotations

import numpy as np

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.operator import GRADIENT, GradientTag, Graph, Operator, TensorName
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem
from tensoropt.tensor_spec import TensorSpec
from tests.oracles.certificates.checker import Checker

STEPS = 4


def recurrence(steps: int = STEPS) -> Graph:
    """h = tanh(h w), again and again, and the gradient by w."""
    state, square = TensorSpec((16, 48), "float32"), TensorSpec((48, 48), "float32")
    stored = TensorSpec((48, 48), "float32_ref")
    w = TensorName("w/read", 0)
    operators = [
        Operator("x", "Placeholder", (), (), (state,), {"dtype": "float32"}),
        Operator("w", "VariableV2", (), (), (stored,), {"dtype": "float32"}),
        Operator("w/read", "Identity", (TensorName("w", 0),), (stored,), (square,)),
    ]
    h = TensorName("x", 0)
    for step in range(steps):
        product, after = f"product{step}", f"tanh{step}"
        flags = {"transpose_a": False, "transpose_b": False}
        operators.append(Operator(product, "MatMul", (h, w), (state, square), (state,), flags))
        operators.append(Operator(after, "Tanh", (TensorName(product, 0),), (state,), (state,)))
        h = TensorName(after, 0)
    tag = GradientTag(0, "dense", (h,), TensorName("w", 0), (None,), ())
    operators.append(Operator("by w", GRADIENT, (h,), (state,), (square,), gradient=tag))
    return Graph({operator.name: operator for operator in operators})


def test_edges_of_an_unrolled_layer_are_one_for_each_pair_of_slots() -> None:
    graph = recurrence()
    cluster = load_cluster("2x8-v100")
    mesh = cluster.mesh(16)
    cost = ClusterCostModel(cluster, mesh)
    whole = graph_problem(AnnotatedGraph.of(graph, mesh, cost, frozenset({"x"})))
    problem = whole.problem
    assert [group.leader for group in whole.choices] == ["x", "w", "product0", "tanh0"]
    # x, the weights, products and states: each but the first two at several steps.
    ends = sorted((edge.source, edge.target) for edge in problem.edges)
    assert ends == [(0, 2), (1, 2), (2, 3), (2, 3)]
    checker = Checker(graph, mesh, cost, frozenset({"x"}))
    rng = np.random.default_rng(0)
    for _ in range(10):
        strategy = [int(rng.integers(node.configurations)) for node in problem.nodes]
        checked = checker.cost(whole.configurations(strategy))
        assert problem.cost(strategy) == (checked.memory, checked.time)


def test_steps_of_a_layer_share_what_is_moved_of_their_weights() -> None:
    cluster = load_cluster("2x8-v100")
    mesh = cluster.mesh(4)
    cost = ClusterCostModel(cluster, mesh)
    times = []
    for steps in (4, 8):
        graph = recurrence(steps)
        problem = graph_problem(AnnotatedGraph.of(graph, mesh, cost, frozenset({"x"}))).problem
        (weights,) = (edge for edge in problem.edges if (edge.source, edge.target) == (1, 2))
        times.append(weights.time)
    assert times[0].max() > 0
    np.testing.assert_array_equal(*times)


def test_nothing_is_moved_to_what_reads_a_shape() -> None:
    graph, cluster = recurrence(), load_cluster("2x8-v100")
    mesh = cluster.mesh(4)
    cost = ClusterCostModel(cluster, mesh)
    read = TensorName("tanh3", 0)
    spec = graph.spec(read)
    shape = Operator("shape", "Shape", (read,), (spec,), (TensorSpec((2,), "int32"),))
    batch = frozenset({"x"})
    plain, asked = (
        graph_problem(AnnotatedGraph.of(each, mesh, cost, batch)).problem
        for each in (graph, Graph({**graph.operators, "shape": shape}))
    )
    assert len(asked.nodes) == len(plain.nodes) + 1
    assert len(asked.edges) == len(plain.edges)
