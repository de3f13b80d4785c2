"""Sums of gradients beside computation: the longer of both times, never more than their sum."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensoropt as tf
from benchmarks.training_step import gradient_descent_step
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.operator_time import OperatorTime
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.prices.overlapped_sums import OverlappedSums
from tensoropt.planner.prices.step_parts import StepTime
from tensoropt.planner.prices.step_time import step_time
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem
from tensoropt.search.baselines import data_parallel

WIDTH, LAYERS, BATCH = 2048, 4, 64
WEIGHTS = 4 * WIDTH * WIDTH  # bytes of a layer


def test_the_network_takes_gradients_as_the_backward_pass_makes_them() -> None:
    sums = OverlappedSums()
    for name in ("first", "second"):
        sums.compute(name, OperatorTime(10, 20), 1, is_update=False)
    sums.compute("update", OperatorTime(5, 0), 1, is_update=True)
    sums.add(["second"], 30)  # from 40, when the second layer's gradient is made
    sums.add(["first"], 30)  # from 70, when the network is free again
    assert sums.hidden_nanoseconds(65) == 65 + 60 - 100


def test_computation_beside_the_network_loses_the_processors_time_for_it() -> None:
    sums = OverlappedSums()
    for name in ("first", "second"):
        sums.compute(name, OperatorTime(10, 20), 1, is_update=False)
    sums.add(["second"], 20, 15)  # from 40 to 60, in which 5 of 20 are computed
    sums.add(["first"], 10, 10)  # from 75, when the first layer's gradient is made
    assert sums.hidden_nanoseconds(60) == 5


def test_a_collective_that_computation_waits_for_comes_after_the_buckets_before_it() -> None:
    sums = OverlappedSums()
    for name in ("first", "second", "third"):
        sums.compute(name, OperatorTime(10, 20), 1, is_update=False)
    sums.add(["third"], 50)  # from 50 to 100
    sums.wait("second")  # at 70; the other 20 are computed from 100 to 120
    assert sums.hidden_nanoseconds(90) == 90 + 50 - 120
    sums.add(["first"], 30)  # from 120
    assert sums.hidden_nanoseconds(90) == 90 + 80 - 150


def test_no_time_is_lost_where_nothing_is_left_to_compute() -> None:
    sums = OverlappedSums()
    sums.compute("only", OperatorTime(10, 20), 1, is_update=False)
    sums.add(["only"], 50, 50)
    assert sums.hidden_nanoseconds(30) == 0


def test_in_microbatches_the_last_one_makes_the_sums() -> None:
    sums = OverlappedSums()
    for name in ("first", "second"):
        sums.compute(name, OperatorTime(10, 20), 4, is_update=False)
    sums.add(["second"], 30)  # from 220 of 240
    assert sums.hidden_nanoseconds(240) == 20


@given(
    st.lists(st.tuples(*[st.integers(1, 99)] * 2, *[st.integers(0, 99)] * 2), min_size=1),
    st.integers(0, 9999),
    st.sets(st.integers(0, 9)),
)
def test_a_step_is_at_most_both_times_and_at_least_each(
    layers: list[tuple[int, int, int, int]], more: int, waits: set[int]
) -> None:
    sums = OverlappedSums()
    for number in waits & {*range(len(layers))}:
        sums.wait(str(number))
    for number, (forward, backward, *_) in enumerate(layers):
        sums.compute(str(number), OperatorTime(forward, backward), 1, is_update=False)
    for number, (_, _, network, processor) in reversed(list(enumerate(layers))):
        sums.add([str(number)], network, processor)
    busy = more + sum(forward + backward for forward, backward, *_ in layers)
    step = busy + sums.network_nanoseconds - sums.hidden_nanoseconds(busy)
    assert max(busy, sums.network_nanoseconds) <= step <= busy + sums.network_nanoseconds


def perceptron() -> None:
    """A step of dense layers."""
    values = tf.placeholder(tf.float32, [None, WIDTH])
    for layer in range(LAYERS):
        values = tf.nn.relu(tf.matmul(values, tf.get_variable(f"weights{layer}", [WIDTH, WIDTH])))
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(values)))


def on_two_machines(bandwidth: float, processor: float | None, ranks: int = 1) -> StepTime:
    """The data-parallel step of a perceptron on two machines."""
    template = load_cluster("this-machine")
    cluster = Cluster.for_hosts(template, [ranks, ranks], 2**33, ranks)
    level = replace(
        cluster.levels[0],
        bandwidth_bytes_per_second=bandwidth,
        processor_bytes_per_second=processor,
    )
    cluster = replace(cluster, levels=(level, cluster.levels[1]))
    step = gradient_descent_step(perceptron, BATCH)
    mesh = cluster.mesh(2 * ranks)
    cost = ClusterCostModel(cluster, mesh)
    problem = graph_problem(AnnotatedGraph.of(step.graph, mesh, cost, step.batch_placeholders))
    (found,) = data_parallel.solve(problem)
    configurations = problem.configurations(found.strategy.tolist())
    return step_time(Strategy(step.graph, mesh, configurations, step.batch_placeholders), cost)


def test_without_overlap_the_step_is_the_sum() -> None:
    step = on_two_machines(12.5e6, None)
    assert step.hidden == 0
    assert step.network == pytest.approx(1e9 * LAYERS * WEIGHTS / 12.5e6, rel=0.05)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_slow_link_hides_the_computation(ranks: int) -> None:
    step = on_two_machines(12.5e6, 1e9, ranks)
    computing = step.total - step.network + step.hidden
    assert step.hidden > 0.4 * computing
    assert step.total < 1.01 * step.network


def test_a_fast_link_hides_behind_the_computation() -> None:
    step = on_two_machines(8e9, 100e9)
    last = 1e9 * WEIGHTS / 8e9  # the first layer's gradient is made last
    assert step.network == pytest.approx(LAYERS * last, rel=0.05)
    assert step.network - step.hidden <= 1.3 * last
