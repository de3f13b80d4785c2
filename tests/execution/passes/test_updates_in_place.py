"""Which operators an update waits for: those that use the value that it replaces."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tensoropt.execution.passes.updates_in_place import let_updates_wait


def test_updates_wait_for_uses_of_the_value_that_they_replace() -> None:
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        weights = tf.compat.v1.get_variable(
            "weights", [2, 2], initializer=tf.ones_initializer(), use_resource=True
        )
        before = len(graph.get_operations())
        read = weights.read_value()
        forward = tf.matmul(tf.ones([2, 2]), read)
        upstream = tf.tanh(forward)
        gradient = tf.matmul(forward, upstream, transpose_a=True)
        by_input = tf.matmul(upstream, tf.reshape(read, [2, 2]), transpose_b=True)
        other = tf.exp(read)  # of something that is not run
        update = weights.assign_sub(gradient, read_value=False)
        with tf.control_dependencies([update]):
            after = tf.square(weights.read_value())
        operations = graph.get_operations()[before:]
        let_updates_wait(operations, [update, by_input.op, after.op])
        assert update.control_inputs == [by_input.op]
        assert other.op not in update.control_inputs
        session.run(weights.initializer)
        found, made = session.run([after, by_input])
    total, ones = np.full((2, 2), 2.0), np.ones((2, 2))
    np.testing.assert_allclose(made, np.tanh(total) @ ones, rtol=1e-6)
    np.testing.assert_allclose(found, (1 - total.T @ np.tanh(total)) ** 2, rtol=1e-5)
