"""Sums of weights' gradients: how many collectives there are, and that results stay."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.buckets import BUCKET_SIZES, BucketSizes
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem
from tensoropt.search.baselines import data_parallel
from tests.oracles.equality import (
    Script,
    choices_of,
    draw,
    executor_of,
    many_lookups,
    mlp,
    model_script,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.proofs import proof

ALONE = BucketSizes(packed_bytes=0)
TINY = BucketSizes(packed_bytes=1 << 30, full_bytes=1)
TOGETHER = BucketSizes(packed_bytes=1 << 30, full_bytes=1 << 30)
SEVERAL = BucketSizes(packed_bytes=1 << 30, full_bytes=24 << 10)
v1 = tf.compat.v1

tensoropt.enable_graph_mode()


def collectives(script: Script, buckets: BucketSizes) -> list[str]:
    """The collectives of a data-parallel step on two devices, in order, without the loss's."""
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(2)
    batched = frozenset(script.feeds[0])
    cost = ClusterCostModel(cluster, mesh)
    problem = graph_problem(AnnotatedGraph.of(script.imported(), mesh, cost, batched))
    chosen = problem.configurations(data_parallel.solve(problem).strategies[0].tolist())
    executor = executor_of(
        script.graph, mesh, chosen, cost.collective_nanoseconds, batched, buckets=buckets
    )
    records = executor.program([], [script.train], script.shapes).collectives
    executor.close()
    return [record for record in records if "gradient" in record]


def unrolled(steps: int) -> Script:
    """A recurrence, which reads its weights in every step."""
    graph = tf.Graph()
    with graph.as_default():
        values = v1.placeholder(tf.float64, [8, 16], name="values")
        weights = v1.get_variable(
            "weights", [16, 16], tf.float64, v1.glorot_uniform_initializer(seed=1)
        )
        for _ in range(steps):
            values = tf.tanh(tf.matmul(values, weights))
        loss = tf.reduce_mean(values)
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    feed = {"values": np.random.default_rng(0).normal(size=(8, 16))}
    return Script(graph, train.name, loss.name, (feed, feed))


def tied(use_resource: bool) -> Script:
    """Weights that are looked up, multiplied by, and multiplied by transposed; and a penalty."""
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=use_resource):
        numbers = v1.placeholder(tf.int32, [8], name="numbers")
        values = v1.placeholder(tf.float64, [8, 4], name="values")
        weights = v1.get_variable(
            "weights", [8, 4], tf.float64, v1.glorot_uniform_initializer(seed=1)
        )
        rows = tf.nn.embedding_lookup(weights, numbers) + values
        scores = tf.matmul(rows, weights, transpose_b=True)
        again = tf.matmul(tf.tanh(scores), weights)
        loss = tf.reduce_mean(tf.square(again)) + 0.1 * tf.nn.l2_loss(weights)
        (gradient,) = v1.gradients(loss, [weights])
        (gradient,), _ = tf.clip_by_global_norm([gradient], 0.5)
        optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
        train = optimizer.apply_gradients([(gradient, weights)])
    random = np.random.default_rng(0)
    feeds = tuple(
        {
            "numbers": random.integers(8, size=8).astype(np.int32),
            "values": random.normal(size=(8, 4)),
        }
        for _ in range(3)
    )
    return Script(graph, train.name, loss.name, feeds)


def test_lookups_and_products_of_a_table_send_one_gradient() -> None:
    assert len(collectives(many_lookups(), ALONE)) == 2  # the table's and the weights'
    assert len(collectives(many_lookups(), TOGETHER)) == 1


def test_small_gradients_travel_together() -> None:
    script = mlp()
    assert len(collectives(script, ALONE)) == 6  # weights and biases of three layers
    assert len(collectives(script, TINY)) == 6
    assert len(collectives(script, TOGETHER)) == len(collectives(script, BUCKET_SIZES)) == 1
    # 96 x 48, 96 x 96 and 48 x 96 of float32: the last two layers fill a bucket.
    assert len(collectives(script, SEVERAL)) == 2


def test_gradients_travel_in_the_order_of_the_backward_pass() -> None:
    read = [re.match(r"[A-Za-z]+(?:_(\d))?/", record) for record in collectives(mlp(), ALONE)]
    assert [int(layer[1] or 0) for layer in read if layer] == [2, 2, 1, 1, 0, 0]


def test_an_unrolled_layer_sends_one_gradient() -> None:
    for sizes in (ALONE, TOGETHER):
        assert len(collectives(unrolled(6), sizes)) == 1


@pytest.mark.proof
def test_the_lstm_sends_a_gradient_for_each_weight() -> None:
    script = model_script("lstm", tf.float32, 1)
    trained = {op.gradient.x for op in script.imported() if op.gradient is not None}
    assert len(collectives(script, TOGETHER)) < len(collectives(script, ALONE))
    assert len(collectives(script, ALONE)) <= len(trained) + 1  # rows and their numbers apart


@pytest.mark.parametrize(
    ("devices", "sizes", "strategies"),
    [
        (2, ALONE, 1),
        (2, TINY, 1),
        (2, SEVERAL, 1),
        (4, TOGETHER, 1),
        *(proof(2, sizes, 2) for sizes in (ALONE, TINY, SEVERAL)),
        proof(4, TOGETHER, 2),
        proof(6, SEVERAL, 2),
    ],
    ids=str,
)
def test_training_equals_one_device_whatever_the_buckets(
    devices: int, sizes: BucketSizes, strategies: int
) -> None:
    script, mesh = mlp(tf.float64, 2), Mesh.of(devices)
    batched = frozenset(script.feeds[0])
    choices = choices_of(script, mesh, batched)
    random = np.random.default_rng(devices)
    truth = train_plain(script)
    for number in range(strategies):
        drawn = draw(script.imported(), choices, mesh, random)
        prices = random_prices(number)
        found = train_parallel(script, mesh, drawn.numbers, prices, batched, buckets=sizes)
        assert worst_error(found, truth) <= 1e-12


@pytest.mark.parametrize(
    ("make", "argument", "sizes"),
    [
        pytest.param(tied, True, TOGETHER, id="tied, together"),
        pytest.param(tied, False, ALONE, id="tied references, alone"),
        pytest.param(unrolled, 5, TOGETHER, id="unrolled, together"),
        pytest.param(lambda _: many_lookups(), 0, ALONE, id="many lookups, alone"),
        proof(lambda _: many_lookups(), 0, TOGETHER, id="many lookups, together"),
        proof(tied, True, ALONE, id="tied, alone"),
        proof(tied, False, TOGETHER, id="tied references, together"),
        proof(unrolled, 5, ALONE, id="unrolled, alone"),
    ],
)
def test_several_readers_in_slots_of_their_own(
    make: Callable[[int], Script], argument: int, sizes: BucketSizes
) -> None:
    script = make(argument)
    mesh, batched = Mesh.of(4), frozenset(script.feeds[0])
    choices = choices_of(script, mesh, batched)
    random = np.random.default_rng(1)
    truth = train_plain(script)
    for number in range(2):
        drawn = draw(script.imported(), choices, mesh, random)
        prices = random_prices(number)
        found = train_parallel(script, mesh, drawn.numbers, prices, batched, buckets=sizes)
        assert worst_error(found, truth) <= 1e-12, drawn.numbers


def test_a_plan_gives_the_same_bits_in_every_run() -> None:
    script, mesh = mlp(tf.float32, 3), Mesh.of(4)
    batched = frozenset(script.feeds[0])
    choices = choices_of(script, mesh, batched)
    drawn = draw(script.imported(), choices, mesh, np.random.default_rng(5))
    one, other = (
        train_parallel(script, mesh, drawn.numbers, random_prices(0), batched) for _ in range(2)
    )
    assert worst_error(one, other) == 0
