"""Plans of small steps, found by the planner, for tests of views, tables and pictures."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import tensoropt as tf
from benchmarks.training_step import gradient_descent_step
from tensoropt.cost.cluster import load_cluster
from tensoropt.plan import Plan
from tensoropt.planner.choose import choose
from tensoropt.planner.request import PipelineNumbers, Request

__all__ = [
    "BATCH",
    "DEVICES",
    "planned",
    "planned_in_microbatches",
    "planned_in_stages",
    "request_of_step",
]

BATCH, DEVICES, WIDTH, LAYERS = 64, 4, 512, 4


def _perceptron() -> None:
    """A table of rows, equal dense layers in scopes of their own, and a loss."""
    numbers = tf.placeholder(tf.int32, [None], "numbers")
    labels = tf.placeholder(tf.int32, [None], "labels")
    with tf.variable_scope("model"):
        with tf.variable_scope("embedding"):
            table = tf.get_variable("table", [1000, WIDTH])
            x = tf.gather(table, numbers)
        for number in range(LAYERS):
            with tf.variable_scope(f"dense{number}"):
                weights = tf.get_variable("weights", [WIDTH, WIDTH])
                x = tf.nn.relu(x @ weights + tf.get_variable("bias", [WIDTH]))
        with tf.variable_scope("scores"):
            scores = x @ tf.get_variable("weights", [WIDTH, 100])
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores, name="loss")
    )
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def request_of_step(**settings: object) -> Request:
    """The request for the step on two machines of two devices."""
    step = gradient_descent_step(_perceptron, BATCH)
    levels = load_cluster("2x8-v100").levels
    two = tuple(replace(level, count=2) for level in levels)
    cluster = replace(load_cluster("2x8-v100"), levels=two)
    return Request(
        step.graph,
        lambda _: cluster,
        DEVICES,
        ("step",),
        {"numbers": (BATCH,), "labels": (BATCH,)},
        step.batch_placeholders,
        reads=step.reads,
        **settings,  # type: ignore[arg-type]
    )


@cache
def planned() -> Plan:
    """The plan of the step on two machines of two devices."""
    return choose(request_of_step(), "mini_time")


@cache
def planned_in_microbatches() -> Plan:
    """The plan of the step in four microbatches."""
    return choose(request_of_step().in_microbatches(4), "mini_time")


@cache
def planned_in_stages() -> Plan:
    """The plan of the step in two stages."""
    return choose(request_of_step(pipeline=PipelineNumbers(2, 4)), "mini_time")
