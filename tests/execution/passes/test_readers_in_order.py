"""The readers of a tensor run before operators that read its other readers' outputs."""

from __future__ import annotations

import tensorflow as tf

from tensoropt.cost.peak.program_peak import program_peak
from tensoropt.execution.passes.operation_order import keep_bias_gradients_apart
from tensoropt.execution.passes.readers_in_order import keep_readers_in_order
from tensoropt.execution.runtime.dry_run import describe
from tensoropt.parallel.mesh import Mesh

KB = 1024


def test_what_is_made_of_one_reader_waits_for_the_others_made_before() -> None:
    with tf.Graph().as_default() as graph:
        tensor = tf.exp(tf.ones([16, 16]))
        early = tf.tan(tf.cos(tf.reshape(tensor, [-1])))  # the cosine reads a view of it
        other = tf.sin(tensor)
        cosine = early.op.inputs[0]
        late = tf.tanh(tf.identity(cosine))
        unneeded = tf.sin(tensor, name="unneeded")
        last = tf.tan(cosine)
        run = [each.op for each in (early, late, other, last)]
        keep_readers_in_order(graph.get_operations(), run)
    assert early.op.control_inputs == []  # it was made before the other reader
    assert late.op.control_inputs == [other.op]
    assert last.op.control_inputs == [other.op]
    assert unneeded.op.control_inputs == []


def test_updates_do_not_wait_and_what_is_large_only_for_what_is_ready() -> None:
    with tf.Graph().as_default() as graph:
        kept = tf.exp(tf.ones([16, 4]))
        by_weights = tf.matmul(kept, tf.ones([16, 64]), transpose_a=True)  # as large as four of it
        by_bias = tf.reduce_sum(kept, 0)  # waits for nothing else, and is small
        by_input = tf.sin(kept)
        total = tf.add_n([by_weights, tf.ones([4, 64])])
        chain = tf.tan(by_input)
        weights = tf.Variable(tf.zeros([16, 4]), use_resource=True)
        update = tf.raw_ops.ResourceApplyGradientDescent(
            var=weights.handle, alpha=0.1, delta=by_input
        )
        keep_readers_in_order(graph.get_operations(), [total.op, chain.op, by_bias.op, update])
    assert total.op.control_inputs == [by_bias.op]
    assert chain.op.control_inputs == [by_weights.op, by_bias.op]
    assert update.control_inputs == []


def peak_kb(in_order: bool) -> float:
    """Gradients by filters of five convolutions; activations and gradients take 32 KB each."""
    with tf.Graph().as_default() as graph:
        made = tf.compat.v1.placeholder(tf.float32, [16, 8, 8, 8])
        filters = [tf.compat.v1.placeholder(tf.float32, [1, 1, 8, 8]) for _ in range(5)]
        biases = [tf.compat.v1.placeholder(tf.float32, [8]) for _ in range(5)]
        for each, bias in zip(filters, biases, strict=True):
            made = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(made, each, 1, "SAME"), bias))
        run = [each.op for each in tf.gradients(made, [*filters, *biases])]
        operations = graph.get_operations()
        keep_bias_gradients_apart(operations)
        if in_order:
            keep_readers_in_order(operations, run)
        return program_peak(describe(run, {}, Mesh(()))).bytes / KB


def test_gradients_that_arrive_at_layers_are_not_all_there_at_once() -> None:
    # Without order those of all layers but the first wait for its gradient by its filter.
    assert peak_kb(in_order=True) <= peak_kb(in_order=False) - 2 * 32
