"""Gradients of matrix products: the same as TensorFlow's, by which kernels, and joined."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.execution.gradient_functions.matrix_products import GRADIENTS, summed_as_one
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.dry_run import ScriptStep, dry_run
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.operators_to_measure import measurable
from tensoropt.planner.prices.step_time import step_time
from tensoropt.problem.operators.reader_gradient_sums import sum_as_measured
from tests.oracles.equality import (
    Script,
    choices_of,
    draw,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)

v1 = tf.compat.v1

tensoropt.enable_graph_mode()


def factors(turned: tuple[bool, bool], rows: int, inner: int, columns: int) -> list[tf.Tensor]:
    """A [rows, inner] and B [inner, columns], each perhaps transposed."""
    random = np.random.default_rng(0)
    shapes = [rows, inner], [inner, columns]
    return [
        tf.constant(random.normal(size=shape[::-1] if turn else shape), tf.float32)
        for shape, turn in zip(shapes, turned, strict=True)
    ]


def gradients(turned: tuple[bool, bool], is_ours: bool, rows: int = 24) -> tuple[list[Any], Any]:
    """Return the gradients of a product by its factors, and the types of their operators."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        left, right = factors(turned, rows, 256, 320)
        with graph.gradient_override_map(GRADIENTS if is_ours else {}):
            made = tf.matmul(left, right, *turned)
        found = tf.gradients(tf.square(made), [left, right])
        return session.run(found), [gradient.op.type for gradient in found]


@pytest.mark.parametrize("turned", list(itertools.product([False, True], repeat=2)))
def test_gradients_of_a_product_are_tensorflows(turned: tuple[bool, bool]) -> None:
    found, _ = gradients(turned, True)
    truth, _ = gradients(turned, False)
    for one, other in zip(found, truth, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-2)


def test_a_gradient_through_a_matrix_is_a_batched_product_where_that_is_faster() -> None:
    assert gradients((False, False), True)[1] == ["BatchMatMulV2", "MatMul"]
    assert gradients((False, True), True)[1] == ["MatMul", "MatMul"]  # nothing is transposed
    assert gradients((False, False), True, rows=4)[1] == ["MatMul", "MatMul"]


def recurrence(steps: int, rows: int, width: int, turned: bool = False) -> Script:
    """Steps that share weights, and a penalty on these."""
    graph = tf.Graph()
    with graph.as_default():
        values = v1.placeholder(tf.float64, [rows, width], name="values")
        weights = v1.get_variable(
            "weights", [width, width], tf.float64, v1.glorot_uniform_initializer(seed=1)
        )
        for _ in range(steps):
            values = tf.tanh(tf.matmul(values, weights, transpose_b=turned))
        loss = tf.reduce_mean(values) + 0.1 * tf.nn.l2_loss(weights)
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    feed = {"values": np.random.default_rng(0).normal(size=(rows, width))}
    return Script(graph, train.name, loss.name, (feed, feed))


def products_of(value: tf.Tensor) -> list[tf.Operation]:
    """The `MatMul` operations from which a tensor is computed, up to their factors."""
    if value.op.type == "MatMul":
        return [value.op]
    return [each for given in value.op.inputs for each in products_of(given)]


@pytest.mark.parametrize("turned", [False, True], ids=["as it is", "transposed"])
def test_steps_of_a_recurrence_have_one_product_for_the_weights(turned: bool) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        weights, values = tf.unstack(tf.random.stateless_normal([2, 16, 16], [1, 2]))
        made = values[:4]
        for _ in range(5):
            made = tf.tanh(tf.matmul(made, weights, transpose_b=turned))
        (apart,) = tf.gradients(tf.reduce_sum(made) + tf.nn.l2_loss(weights), [weights])
        joined = summed_as_one(apart)
        one, other = session.run([apart, joined])
    assert len(products_of(apart)) == 5
    assert [each.inputs[0].shape.num_elements() for each in products_of(joined)] == [5 * 4 * 16]
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_weights_that_are_not_moved_have_one_product_too() -> None:
    script = recurrence(5, 4, 16)
    step = ScriptStep(script.graph, [script.train], script.shapes, StepOptions(frozenset(), 1))
    program = dry_run(step, Mesh(()), {}, lambda *_: ())
    products = [kernel for kernel in program.kernels if kernel.type == "MatMul"]
    factors = [program.kernels[number].outputs[output] for number, output in products[-1].inputs]
    assert [factor.shape for factor in factors] == [(5 * 4, 16), (5 * 4, 16)]


@pytest.mark.parametrize(("rows", "added"), [(4, 2), (32, 6)], ids=["joined", "apart"])
def test_a_step_is_priced_by_the_products_that_it_has(rows: int, added: int) -> None:
    cluster = load_cluster("8-v100")
    graph, mesh = recurrence(5, rows, 16).imported(), cluster.mesh(1)
    cost = ClusterCostModel(cluster, mesh)
    time = step_time(Strategy(graph, mesh, {}), cost)
    total = sum_as_measured((16, 16), "float64", added, mesh).work
    assert time.sums == cost.operator_nanoseconds(total).total
    wanted = measurable(graph, mesh, cluster.device)
    one = [each.work.local_shapes for each in wanted if each.operator.name.startswith("product_of")]
    assert one == ([((5 * rows, 16), (5 * rows, 16))] if added == 2 else [])


def test_products_of_more_rows_than_it_pays_for_stay() -> None:
    with tf.Graph().as_default():
        weights, values = tf.unstack(tf.random.stateless_normal([2, 16, 16], [1, 2]))
        (gradient,) = tf.gradients(tf.tanh(values @ weights) @ weights, [weights])
        assert summed_as_one(gradient) is gradient


def test_what_is_no_sum_of_products_stays() -> None:
    with tf.Graph().as_default():
        weights = tf.random.stateless_normal([16, 16], [1, 2])
        (gradient,) = tf.gradients(tf.square(weights) + tf.tanh(weights), [weights])
        assert gradient.op.type == "AddN"
        assert summed_as_one(gradient) is gradient
        assert summed_as_one(None) is None
        slices = tf.IndexedSlices(weights, tf.range(16))
        assert summed_as_one(slices) is slices


@pytest.mark.parametrize("turned", [False, True], ids=["as it is", "transposed"])
def test_a_recurrence_trains_as_on_one_device(turned: bool) -> None:
    script, mesh = recurrence(5, 4, 16, turned), Mesh.of(4)
    batched = frozenset(script.feeds[0])
    choices = choices_of(script, mesh, batched)
    random, truth = np.random.default_rng(2), train_plain(script)
    for number in range(3):
        drawn = draw(script.imported(), choices, mesh, random)
        found = train_parallel(script, mesh, drawn.numbers, random_prices(number), batched)
        assert worst_error(found, truth) <= 1e-12, drawn.numbers
