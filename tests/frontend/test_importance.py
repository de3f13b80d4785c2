"""The order in which collectives are measured for a profile."""

from __future__ import annotations

import tensoropt as tf
from benchmarks.training_step import gradient_descent_step
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.measuring.measure import WantedCollective
from tensoropt.frontend.measuring.profile_measurement import by_importance
from tensoropt.planner.request import Request

WIDTH, BATCH = 512, 16
GRADIENT = 4 * WIDTH * WIDTH  # bytes
WANTED = [
    WantedCollective(kind, "", (0,), 1 << power)
    for kind in ("broadcast", "alltoall", "allgather", "allreduce")
    for power in (4, 12, 18, 20, 22)
]


def step() -> Request:
    """A step of dense layers on two machines."""

    def perceptron() -> None:
        values = tf.placeholder(tf.float32, [None, WIDTH])
        for layer in range(3):
            values = tf.nn.relu(tf.matmul(values, tf.get_variable(f"w{layer}", [WIDTH, WIDTH])))
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(values)))

    imported = gradient_descent_step(perceptron, BATCH)
    cluster = Cluster.for_hosts(load_cluster("this-machine"), [1, 1], 2**33, 1)
    return Request(
        graph=imported.graph,
        cluster_at=lambda _: cluster,
        devices=2,
        roots=(),
        shapes={},
        batch_placeholders=imported.batch_placeholders,
        reads=imported.reads,
    )


def test_what_steps_spend_time_in_comes_first() -> None:
    order = by_importance(WANTED, step())
    assert sorted(order) == sorted(WANTED)
    assert {each.wanted_bytes for each in order[:4]} == {16}  # latencies
    kind, _, _, bytes_ = order[4]
    assert (kind, bytes_.bit_length()) == ("allreduce", GRADIENT.bit_length())
    assert all(each.kind != "broadcast" for each in order[4:8])


def test_without_a_script_sizes_are_coarse_to_fine() -> None:
    order = by_importance(WANTED, None)
    assert sorted(order) == sorted(WANTED)
    assert [each.wanted_bytes for each in order[4:12]] == 4 * [1 << 20, 1 << 12]
    assert {each.wanted_bytes for each in order[12:]} == {1 << 22, 1 << 18}
    assert order[4].kind == "allreduce"
