"""What the backward pass reads is found whatever scripts call their gradients."""

from __future__ import annotations

import tensorflow as tf

import tensoropt
from tensoropt.frontend.planning.training_step import imported_step
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.from_tensorflow import backward_reads

v1 = tf.compat.v1

tensoropt.enable_graph_mode()


def reads_of(name: str, order: int = 1, again: bool = False) -> BackwardReads:
    """The tensors that gradients of two layers read; with ``again``, in an imported copy."""
    script = tf.Graph()
    with script.as_default():
        x = v1.placeholder(tf.float32, [8, 4], name="x")
        w = v1.get_variable("w", [4, 4], initializer=v1.zeros_initializer(), use_resource=False)
        loss = tf.reduce_sum(tf.tanh(tf.matmul(x, w), name="tanh") ** 2)
        for _ in range(order):
            (slope,) = tensoropt.gradients(loss, [w], name=name)
            loss = tf.reduce_sum(slope * slope)
        v1.assign_sub(w, slope, name="step")
    if again:
        definition, script = script.as_graph_def(), tf.Graph()
        with script.as_default():
            tf.import_graph_def(definition, name="")
    with script.as_default():
        graph = imported_step(script, ["step"], {"x": (8, 4)})
        return backward_reads(script, graph)


def test_gradients_of_any_name() -> None:
    plain = reads_of("gradients")
    assert plain.inputs["MatMul"] == (0,)
    assert plain.outputs["tanh"] == (0,)
    assert reads_of("slopes") == plain
    assert reads_of("gradients", again=True) == plain


def test_gradients_of_gradients_read_what_the_first_ones_are_of() -> None:
    found = reads_of("slopes", order=2)
    assert found.outputs["tanh"] == (0,)
    assert 0 in found.inputs["MatMul"]
