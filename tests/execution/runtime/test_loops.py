"""The memory of a loop in an emitted program, from its body."""

from __future__ import annotations

import tensorflow as tf

from tensoropt.cost.peak.device_program import Kernel
from tensoropt.cost.peak.program_peak import program_peak
from tensoropt.execution.runtime.dry_run import describe
from tensoropt.execution.runtime.loops import with_bodies
from tensoropt.graph.from_tensorflow.called_shapes import inferred_graph
from tensoropt.parallel.mesh import Mesh

STEPS, BATCH, WIDTH = 6, 4, 64
STATE = BATCH * WIDTH * 4
"""Bytes of a state, and of an item."""


def described(parallel: int, keeps: bool) -> tuple[Kernel, int]:
    """A recurrence's loop, whose batch it was traced without, and the peak of its program.

    In each iteration a product with the input does not need the state.
    """

    def scan(inputs: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        items = tf.TensorArray(tf.float32, STEPS, element_shape=[None, WIDTH])

        def body(step: tf.Tensor, state: tf.Tensor, items: tf.TensorArray) -> object:
            state = tf.tanh(tf.matmul(inputs[step], weights) + state)
            return step + 1, state, items.write(step, state) if keeps else items

        _, state, items = tf.while_loop(
            lambda step, *_: step < STEPS,
            body,
            (0, tf.zeros([BATCH, WIDTH]), items),
            (tf.TensorShape([]), tf.TensorShape([None, WIDTH]), None),
            parallel_iterations=parallel,
        )
        return items.stack() if keeps else state

    shapes = [STEPS, BATCH, WIDTH], [WIDTH, WIDTH]
    traced = tf.function(scan).get_concrete_function(
        *(tf.TensorSpec(shape, tf.float32) for shape in shapes)
    )
    definition = traced.graph.as_graph_def()
    for node, shape in zip(definition.node, shapes, strict=False):
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    graph, mesh = inferred_graph(definition), Mesh.of(1)
    result = graph.get_operation_by_name(traced.outputs[0].op.name)
    program = with_bodies(
        describe([result], {}, mesh), graph, lambda body: describe(body, {}, mesh)
    )
    (loop,) = [kernel for kernel in program.kernels if "While" in kernel.type]
    return loop, program_peak(program).bytes


def test_iterations_that_run_ahead_hold_their_products() -> None:
    three, peak_of_three = described(3, keeps=False)
    five, peak_of_five = described(5, keeps=False)
    every, _ = described(32, keeps=False)  # a sequence has six items
    assert five.body_bytes - three.body_bytes == peak_of_five - peak_of_three == 2 * STATE
    assert every.body_bytes - five.body_bytes == STATE
    states = [spec for spec in five.outputs if spec.shape == (BATCH, WIDTH)]
    assert len(states) == 1  # has the batch of the loop's input
    assert len(five.unchanged) == 2  # the input and the weights


def test_items_of_a_list_take_the_place_of_what_ran_ahead() -> None:
    one, peak = described(1, keeps=True)
    every, peak_of_every = described(32, keeps=True)
    assert one.body_bytes == every.body_bytes
    assert peak == peak_of_every
    sequences = [spec for spec in one.outputs if spec.shape == (STEPS, BATCH, WIDTH)]
    assert len(sequences) == 2  # the input and the list
