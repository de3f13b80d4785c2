"""Frontiers by executed steps, from those that searches find by their sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensoropt as tf
from benchmarks.search.zoo.measuring import request_of_script
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.planner.choose import choose
from tensoropt.planner.offers.executed_frontier import executed_frontier
from tensoropt.planner.searches.frontier_search import search_frontier
from tensoropt.search.baselines import data_parallel
from tensoropt.search.pareto.frontier import Frontier, FrontierPoint

FEW, MANY = 10, 1_000_000  # operators, of which depends how many points are priced

sums = st.lists(st.integers(1, 10**9), min_size=1, max_size=60, unique=True).map(sorted)


@given(sums, st.data(), st.sampled_from([FEW, MANY]))
def test_no_priced_strategy_beats_the_frontier(
    memory: list[int], data: st.DataObject, operators: int
) -> None:
    count = len(memory)
    time = sorted(data.draw(st.sets(st.integers(1, 10**9), min_size=count, max_size=count)))
    searched = Frontier(np.array(memory), np.array(time[::-1]), np.arange(count)[:, np.newaxis])
    hidden = data.draw(st.lists(st.floats(0, 0.9), min_size=count + 1, max_size=count + 1))
    usable = data.draw(st.integers(0, 2 * memory[-1]))
    parallel = FrontierPoint(
        data.draw(st.integers(1, 10**9)), 10**9, np.array([count], dtype=np.int32)
    )
    priced: dict[int, FrontierPoint] = {}

    def step_of(point: FrontierPoint) -> int:
        (number,) = point.strategy.tolist()
        step = 1 + round(point.time * (1 - hidden[number]))
        priced[number] = point._replace(time=step)
        return step

    parallel = parallel._replace(time=step_of(parallel))
    found = executed_frontier(searched, step_of, operators, usable, [parallel])
    assert {count, count - 1} <= priced.keys()
    for point in priced.values():
        assert ((found.memory <= point.memory) & (found.time <= point.time)).any()
    for point in found:
        (number,) = point.strategy.tolist()
        if number in priced:
            assert (point.memory, point.time) == priced[number][:2]
    if operators == FEW:
        assert len(priced) == count + 1


def test_the_fastest_strategy_that_fits_is_priced() -> None:
    memory, time = np.arange(1, 1001), np.arange(2000, 1000, -1)
    searched = Frontier(memory, time, memory[:, np.newaxis])
    priced = []

    def step_of(point: FrontierPoint) -> int:
        priced.append(point.memory)
        return point.time // 2

    found = executed_frontier(searched, step_of, MANY, 700)
    assert priced == [1000, 1, 700]
    assert found.points[found.fastest(700)] == (700, 1301 // 2)
    assert found.time.tolist() == sorted({t // 2 for t in time.tolist()}, reverse=True)


@pytest.fixture
def link() -> Cluster:
    """Two machines that compute while the link between them carries sums of gradients."""
    cluster = Cluster.for_hosts(load_cluster("this-machine"), [1, 1], 2**33, 2)
    between, within = cluster.levels
    slow = replace(between, bandwidth_bytes_per_second=2e9, processor_bytes_per_second=1e10)
    return replace(cluster, levels=(slow, within))


def test_what_hides_behind_computation_counts_on_the_frontier(link: Cluster) -> None:
    """By sums, strategies without the sums of gradients beat data parallelism, which hides them."""

    def script() -> None:
        values = tf.placeholder(tf.float32, [None, 512], name="values")
        for layer in range(4):
            weights = tf.get_variable(f"weights{layer}", [512, 512])
            values = tf.nn.relu(tf.matmul(values, weights))
        tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(values))

    request = request_of_script(script, 512, link, 2)
    problem, searched = search_frontier(request, 2)
    (parallel,) = data_parallel.solve(problem)
    assert ((searched.memory <= parallel.memory) & (searched.time < parallel.time)).any()
    plan = choose(request, "mini_time")
    assert plan.point is not None
    assert plan.frontier[plan.point] == (parallel.memory, plan.executed_nanoseconds)
    assert plan.executed_nanoseconds == min(step for _, step in plan.frontier)
    assert plan.executed_nanoseconds < plan.time_nanoseconds
