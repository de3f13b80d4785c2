"""A data-parallel step of an unrolled LSTM, priced as by hand from a cluster's figures."""

from __future__ import annotations

import pytest

from benchmarks.training_step import gradient_descent_step
from examples.models import lstm_language_model
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.prices.step_time import step_time
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem
from tensoropt.search.baselines import data_parallel

HIDDEN, LAYERS, STEPS, BATCH, DEVICES, PER_MACHINE = 24576, 2, 3, 256, 16, 8


def test_an_unrolled_layer_s_kernel_is_sent_once_and_read_at_every_step() -> None:
    step = gradient_descent_step(
        lambda: lstm_language_model(hidden=HIDDEN, layers=LAYERS, steps=STEPS, vocabulary=1024),
        BATCH,
    )
    cluster = load_cluster("2x8-v100")
    mesh = cluster.mesh(DEVICES)
    cost = ClusterCostModel(cluster, mesh)
    annotated = AnnotatedGraph.of(step.graph, mesh, cost, step.batch_placeholders)
    problem = graph_problem(annotated)
    (found,) = data_parallel.solve(problem)
    configurations = problem.configurations(found.strategy.tolist())
    strategy = Strategy(step.graph, mesh, configurations, step.batch_placeholders)
    predicted = step_time(strategy, cost)

    kernel = 4 * (2 * HIDDEN) * (4 * HIDDEN)  # bytes: of input and state, to four gates
    card, link, memory = 12.5e9 / PER_MACHINE, 150e9, 900e9  # bytes a second of one device
    # Ring: all but one of the parts to a neighbour, within a machine, then what is left across;
    # and back the same way.
    within = (PER_MACHINE - 1) * kernel / PER_MACHINE / link
    network = LAYERS * 2 * (within + kernel / DEVICES / card)
    # Of 16 examples a device products take as long as reading the kernel: forward, and for the
    # gradient by their rows. One product of all steps' rows writes the kernel's gradient once. An
    # update reads the gradient and reads and writes the kernel.
    computing = LAYERS * (2 * STEPS + 1 + 3) * kernel / memory
    assert predicted.network == pytest.approx(1e9 * network, rel=0.02)
    assert predicted.operators == pytest.approx(1e9 * computing, rel=0.2)
    assert predicted.sums < 0.01e9 * kernel / memory
    for total in (predicted.total, found.time):
        assert total == pytest.approx(1e9 * (network + computing), rel=0.05)
