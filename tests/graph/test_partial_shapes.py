"""Extents of a shape of which others are open."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tensoropt.graph.from_tensorflow import import_graph

v1 = tf.compat.v1


@pytest.mark.parametrize("kind", ["tensordot", "sliced", "gathered", "by an open place"])
def test_what_follows_from_known_extents(kind: str) -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [8, None, 6], name="x")
        shape = tf.shape(x)
        if kind == "tensordot":
            made = tf.tensordot(x, tf.ones([6, 5]), 1)
        elif kind == "sliced":
            made = tf.reshape(x, [shape[0] * shape[1], tf.shape(x)[tf.rank(x) - 1]])
        elif kind == "gathered":
            made = tf.reshape(x, tf.concat([[-1], tf.gather(shape, [2])], 0))
        else:
            made = tf.reshape(x, [-1, tf.gather(shape, shape[1] % 3)])
    found = import_graph(graph, [made.op.name], {"x": (8, None, 6)})
    shapes = [op.outputs[0].shape for op in found if op.type == "Reshape"]
    assert shapes[0] == ((-1, -1) if kind == "by an open place" else (-1, 6))
