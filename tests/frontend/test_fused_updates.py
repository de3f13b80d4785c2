"""Updates by momentum that are written operator by operator, by one kernel."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tensoropt.frontend.definitions.fused_updates import fuse_updates

raw = tf.raw_ops
KERNEL = "ResourceApplyKerasMomentum"


def update(
    nesterov: bool, rate: Any, reads_before: bool = False, reads_product: bool = False
) -> Any:
    """Two updates of a weight as Keras writes them: a graph, and the operator that begins it."""
    graph = tf.Graph()
    with graph.as_default():
        weight, momentum = (
            raw.VarHandleOp(dtype=tf.float32, shape=[3], shared_name=name, name=name)
            for name in ("weight", "momentum")
        )
        start = tf.group(
            raw.AssignVariableOp(resource=weight, value=tf.constant([1.0, 2.0, 3.0])),
            raw.AssignVariableOp(resource=momentum, value=tf.constant([0.5, 0.25, 0.125])),
            name="start",
        )
        gradient, factor = tf.constant([0.3, 0.2, 0.1], name="gradient"), tf.constant(0.9)
        rate = tf.constant(rate, tf.float32)
        before = raw.ReadVariableOp(resource=momentum, dtype=tf.float32)
        kept = before * factor
        with tf.control_dependencies([before]):
            changed = raw.AssignVariableOp(resource=momentum, value=kept - gradient * rate)
        with tf.control_dependencies([] if reads_before else [changed]):
            step = raw.ReadVariableOp(resource=momentum, dtype=tf.float32)
        step = step * factor - gradient * rate if nesterov else step
        raw.AssignAddVariableOp(resource=weight, value=step, name="update")
        if reads_product:
            tf.identity(kept)
    assert start.name == "start"
    return graph


def after_two_steps(definition: Any) -> list[Any]:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        start, step, weight, momentum = tf.import_graph_def(
            definition, return_elements=["start", "update", "weight:0", "momentum:0"]
        )
        reads = [raw.ReadVariableOp(resource=each, dtype=tf.float32) for each in (weight, momentum)]
        session.run(start)
        session.run(step)
        session.run(step)
        values: list[Any] = session.run(reads)
        return values


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_is_one_kernel_and_computes_the_same(nesterov: bool) -> None:
    graph = update(nesterov, 0.1)
    definition = graph.as_graph_def()
    fuse_updates(definition, graph)
    assert Counter(node.op for node in definition.node)[KERNEL] == 1
    assert {node.name for node in definition.node} == {
        node.name for node in graph.as_graph_def().node
    }
    expected = after_two_steps(graph.as_graph_def())
    for value, truth in zip(after_two_steps(definition), expected, strict=True):
        np.testing.assert_allclose(value, truth, rtol=2e-7)


@pytest.mark.parametrize(
    "other",
    [{"rate": [0.1, 0.2, 0.3]}, {"reads_before": True}, {"reads_product": True}],
    ids=["a rate for each element", "the momentum before it changes", "a part is read"],
)
def test_what_is_something_else_stays(other: dict[str, Any]) -> None:
    graph = update(**{"nesterov": False, "rate": 0.1, **other})
    definition = graph.as_graph_def()
    fuse_updates(definition, graph)
    assert definition == graph.as_graph_def()
