"""The order in which a profile times the operators of a step."""

from __future__ import annotations

import tensoropt as tf
from benchmarks.training_step import gradient_descent_step
from tensoropt.cost.cluster import load_cluster
from tensoropt.parallel.mesh import Mesh
from tensoropt.planner.operators_to_measure import measurable

WIDTH = 2048  # the start of a kernel takes little of its time


def two_products() -> None:
    """A step of two dense layers."""
    values = tf.placeholder(tf.float32, [None, WIDTH])
    for layer in range(2):
        values = tf.nn.relu(tf.matmul(values, tf.get_variable(f"weights{layer}", [WIDTH, WIDTH])))
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(values)))


def test_configurations_that_use_all_devices_come_first() -> None:
    step, mesh = gradient_descent_step(two_products, WIDTH), Mesh((2, 2))
    wanted = measurable(step.graph, mesh, load_cluster("8-v100").device, step.batch_placeholders)
    flops = [each.work.flops for each in wanted if each.work.operator == "MatMul"]
    whole = 2 * WIDTH**3
    assert {whole // 4, whole // 2, whole} == set(flops)
    on_all = flops.count(whole // 4)
    assert set(flops[:on_all]) == {whole // 4}
