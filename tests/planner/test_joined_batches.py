"""Plans of steps whose reshapes join a batch that the devices do not divide."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from tensoropt.cost.cluster import Kind, load_cluster
from tensoropt.plan import Plan
from tensoropt.planner.choose import chosen
from tensoropt.planner.offers.kept_frontier import KeptFrontier
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.request import Request
from tests.oracles.equality import Script

v1 = tf.compat.v1
CLUSTER = load_cluster("8-v100")
LENGTH, WIDTH, WORDS = 128, 256, 4000


def attention(batch: int) -> Script:
    """Dense layers of [batch * length, width] around attention over [batch, length, width]."""
    graph = tf.Graph()
    with graph.as_default():
        words = v1.placeholder(tf.int32, [batch, LENGTH], name="words")
        table = v1.get_variable("table", [WORDS, WIDTH])
        flat = tf.reshape(tf.gather(table, words), [-1, WIDTH])
        flat = tf.nn.relu(tf.matmul(flat, v1.get_variable("dense", [WIDTH, WIDTH])))
        values = tf.reshape(flat, [batch, LENGTH, WIDTH])
        mixed = tf.matmul(tf.nn.softmax(tf.matmul(values, values, transpose_b=True)), values)
        scores = tf.matmul(tf.reshape(mixed, [-1, WIDTH]), table, transpose_b=True)
        labels = tf.reshape(words, [-1])
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        loss = tf.reduce_mean(each)
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    return Script(graph, train.name, loss.name, ({"words": np.zeros((batch, LENGTH), np.int32)},))


def of(batch: int, slow: float = 1.0) -> Request:
    script = attention(batch)
    cluster = replace(CLUSTER, kinds=(Kind("old", (3,), slow),)) if slow < 1 else CLUSTER
    return Request(
        graph=script.imported(),
        cluster_at=lambda _: cluster,
        devices=4,
        roots=(script.train,),
        shapes=script.shapes,
        batch_placeholders=frozenset({"words"}),
    )


def joins(plan: Plan) -> set[str]:
    """The splits of reshapes along the batch."""
    reshapes = [operator for operator in plan.operators if operator.type == "Reshape"]
    assert len(reshapes) >= 3
    return {str(operator.splits[0]) for operator in reshapes}


def test_reshapes_are_split_along_an_uneven_batch() -> None:
    market, plan = chosen(of(30), "mini_time")
    assert plan.units == ((30 * LENGTH, LENGTH),)
    assert joins(plan) == {"(0, 1)"}
    written = json.loads(json.dumps(plan.to_json()))
    assert Plan.from_json(written).to_json() == plan.to_json()
    kept = KeptFrontier.from_json(json.loads(json.dumps(market.kept(plan).to_json())))
    again = kept.plan_of(of(30), "mini_time", len(plan.frontier) - 1)
    assert again.units == plan.units
    assert market.looked_at.startswith(
        "searched: whole batch, whole batch with joined batches cut evenly"
    )
    whole, even = (offer for offer in market.offers if isinstance(offer, Strategies))
    assert even.problem.mesh.units == ()
    assert whole.points[-1][1] < even.points[-1][1]


def test_even_batches_are_planned_without_units() -> None:
    market, plan = chosen(of(32), "mini_time")
    assert joins(plan) == {"(0, 1)"}
    assert plan.units == ()
    assert "units" not in plan.to_json()
    assert "joined" not in market.looked_at


@pytest.mark.parametrize("batch", [32, 30])
def test_reshapes_are_split_in_proportion_to_speeds(batch: int) -> None:
    _, plan = chosen(of(batch, 0.5), "mini_time")
    assert plan.shares is not None
    assert plan.units == ((batch * LENGTH, LENGTH),)
    assert joins(plan) == {"(0, 1)"}
