"""The network beside computation: the longer of both times, never more than their sum."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensoropt as tf
from benchmarks.training_step import gradient_descent_step
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.operator_time import OperatorTime
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.prices.overlapped_network import OverlappedNetwork
from tensoropt.planner.prices.step_parts import StepTime
from tensoropt.planner.prices.step_time import step_time
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem
from tensoropt.search.baselines import data_parallel

WIDTH, LAYERS, BATCH = 2048, 4, 64
WEIGHTS = 4 * WIDTH * WIDTH  # bytes of a layer


def test_the_network_takes_gradients_as_the_backward_pass_makes_them() -> None:
    sums = OverlappedNetwork()
    for name in ("first", "second"):
        sums.compute(name, OperatorTime(10, 20), 1, is_update=False)
    sums.compute("update", OperatorTime(5, 0), 1, is_update=True)
    sums.add(["second"], 30)  # from 40, when the second layer's gradient is made
    sums.add(["first"], 30)  # from 70, when the network is free again
    assert sums.hidden_nanoseconds(65) == 65 + 60 - 100


def test_computation_beside_the_network_loses_the_processors_time_for_it() -> None:
    sums = OverlappedNetwork()
    for name in ("first", "second"):
        sums.compute(name, OperatorTime(10, 20), 1, is_update=False)
    sums.add(["second"], 20, 15)  # from 40 to 60, in which 5 of 20 are computed
    sums.add(["first"], 10, 10)  # from 75, when the first layer's gradient is made
    assert sums.hidden_nanoseconds(60) == 5


def test_a_collective_that_computation_waits_for_comes_after_the_buckets_before_it() -> None:
    sums = OverlappedNetwork()
    for name in ("first", "second", "third"):
        sums.compute(name, OperatorTime(10, 20), 1, is_update=False)
    sums.add(["third"], 50)  # from 50 to 100
    sums.wait("second")  # at 70; the other 20 are computed from 100 to 120
    assert sums.hidden_nanoseconds(90) == 90 + 50 - 120
    sums.add(["first"], 30)  # from 120
    assert sums.hidden_nanoseconds(90) == 90 + 80 - 150


def test_no_time_is_lost_where_nothing_is_left_to_compute() -> None:
    sums = OverlappedNetwork()
    sums.compute("only", OperatorTime(10, 20), 1, is_update=False)
    sums.add(["only"], 50, 50)
    assert sums.hidden_nanoseconds(30) == 0


def test_in_microbatches_the_last_one_makes_the_sums() -> None:
    sums = OverlappedNetwork()
    for name in ("first", "second"):
        sums.compute(name, OperatorTime(10, 20), 4, is_update=False)
    sums.add(["second"], 30)  # from 220 of 240
    assert sums.hidden_nanoseconds(240) == 20


def test_weights_are_gathered_one_after_another_from_the_start_of_the_step() -> None:
    network = OverlappedNetwork()
    for number, nanoseconds in enumerate((5, 8, 20)):
        network.gather(nanoseconds)  # until 5, 13, 33; needed from 0, 15, 25
        network.compute(str(number), OperatorTime(10, 0), 1, is_update=False)
    assert network.hidden_nanoseconds(30) == 30 + 33 - 43
    network.add(["0"], 7)  # from 43, when all is computed
    assert network.hidden_nanoseconds(30) == 30 + 40 - 50


def test_gathering_slows_computation_but_not_where_that_waits_anyway() -> None:
    network = OverlappedNetwork()
    network.compute("none", OperatorTime(10, 0), 1, is_update=False)
    network.gather(12, 4)  # until 12, when 8 of 10 are computed
    network.compute("first", OperatorTime(10, 0), 1, is_update=False)
    network.gather(30, 10)  # until 42; the first operator ends at 34
    network.compute("second", OperatorTime(10, 0), 1, is_update=False)
    assert network.hidden_nanoseconds(30) == 30 + 42 - 52


def test_weights_are_gathered_after_a_collective_before_them() -> None:
    network = OverlappedNetwork()
    network.compute("first", OperatorTime(10, 0), 1, is_update=False)
    network.hold()
    network.gather(20)  # from 10 to 30
    network.compute("second", OperatorTime(10, 0), 1, is_update=False)
    assert network.hidden_nanoseconds(20) == 20 + 20 - 40


@given(
    st.lists(st.tuples(*[st.integers(1, 99)] * 2, *[st.integers(0, 99)] * 4), min_size=1),
    st.integers(0, 9999),
    st.sets(st.integers(0, 9)),
)
def test_a_step_is_at_most_both_times_and_at_least_each(
    layers: list[tuple[int, ...]], more: int, waits: set[int]
) -> None:
    network = OverlappedNetwork()
    for number, (forward, backward, _, _, gathered, processor) in enumerate(layers):
        if number in waits:
            network.hold()
            network.wait(str(number))
        network.gather(gathered, processor)
        network.compute(str(number), OperatorTime(forward, backward), 1, is_update=False)
    for number, (_, _, summed, processor, *_) in reversed(list(enumerate(layers))):
        network.add([str(number)], summed, processor)
    busy = more + sum(forward + backward for forward, backward, *_ in layers)
    step = busy + network.network_nanoseconds - network.hidden_nanoseconds(busy)
    assert max(busy, network.network_nanoseconds) <= step <= busy + network.network_nanoseconds


def perceptron() -> None:
    """A step of dense layers."""
    values = tf.placeholder(tf.float32, [None, WIDTH])
    for layer in range(LAYERS):
        values = tf.nn.relu(tf.matmul(values, tf.get_variable(f"weights{layer}", [WIDTH, WIDTH])))
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(values)))


def on_two_machines(
    bandwidth: float, processor: float | None, ranks: int = 1, splits_weights: bool = False
) -> StepTime:
    """The data-parallel step of a perceptron on two machines, whose ranks may hold half of each
    weight."""
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
    if splits_weights:
        of_weights = re.compile("weights|ReadVariableOp|gradients/recorded")
        split = Configuration(((0,), ()))
        configurations |= dict.fromkeys(filter(of_weights.search, configurations), split)
    return step_time(Strategy(step.graph, mesh, configurations, step.batch_placeholders), cost)


@pytest.mark.parametrize("splits_weights", [False, True])
def test_without_overlap_the_step_is_the_sum(splits_weights: bool) -> None:
    step = on_two_machines(12.5e6, None, splits_weights=splits_weights)
    assert step.hidden == 0
    assert step.network == pytest.approx(1e9 * LAYERS * WEIGHTS / 12.5e6, rel=0.05)


@pytest.mark.parametrize(("ranks", "splits_weights"), [(1, False), (2, False), (1, True)])
def test_a_slow_link_hides_the_computation(ranks: int, splits_weights: bool) -> None:
    step = on_two_machines(12.5e6, 1e9, ranks, splits_weights)
    computing = step.total - step.network + step.hidden
    assert step.hidden > 0.4 * computing
    assert step.total < 1.01 * step.network


def test_a_fast_link_hides_behind_the_computation() -> None:
    step = on_two_machines(8e9, 100e9)
    last = 1e9 * WEIGHTS / 8e9  # the first layer's gradient is made last
    assert step.network == pytest.approx(LAYERS * last, rel=0.05)
    assert step.network - step.hidden <= 1.3 * last


def test_over_a_fast_link_all_but_the_first_weight_come_in_time() -> None:
    step = on_two_machines(8e9, 100e9, splits_weights=True)
    first = last = 0.5e9 * WEIGHTS / 8e9  # half of the first layer's weight, and of its gradient
    assert step.network == pytest.approx(2 * LAYERS * first, rel=0.05)
    assert step.network - step.hidden <= 1.3 * (first + last)
