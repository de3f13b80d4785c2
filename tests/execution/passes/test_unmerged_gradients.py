"""Gradients of a convolution with a bias: what they run, and that they are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.execution.passes.operation_order import keep_bias_gradients_apart


def _session() -> tf.compat.v1.Session:
    """Return a session that runs the graph as it is, as programs are run."""
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf.compat.v1.Session(config=config)


def gradients(is_kept_apart: bool) -> tuple[list[Any], set[str]]:
    """Gradients by filter and bias, and the kernels that computed them."""
    with tf.Graph().as_default() as graph, _session() as session:
        images = tf.compat.v1.placeholder(tf.float32, [2, 8, 8, 4])
        kernel = tf.reshape(tf.range(288, dtype=tf.float32) / 288, [3, 3, 4, 8])
        bias = tf.ones([8])
        made = tf.nn.bias_add(tf.nn.conv2d(images, kernel, 1, "SAME"), bias)
        found = tf.gradients(tf.tanh(made), [kernel, bias])
        if is_kept_apart:
            keep_bias_gradients_apart(graph.get_operations())
        values = np.random.default_rng(0).normal(size=[2, 8, 8, 4])
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        metadata = tf.compat.v1.RunMetadata()
        run = session.run(found, {images: values}, options=options, run_metadata=metadata)
    nodes = (node.op for each in metadata.partition_graphs for node in each.node)
    return run, set(nodes)


def test_gradients_by_filter_and_bias_have_a_kernel_each() -> None:
    apart, kernels = gradients(True)
    assert not any(kernel.endswith("BackpropFilterWithBias") for kernel in kernels)
    for found, truth in zip(apart, gradients(False)[0], strict=True):
        np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-5)
