"""Loops and conditionals, and gradients through them, under random strategies."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_v2_toggles  # turns off what scripts cannot

import tensoropt
from tensoropt.errors import GraphError
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.parallel.choices.choices import strategy_choices
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import (
    Script,
    draw,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.proofs import proof

v1 = tf.compat.v1
BATCHED = frozenset({"images"})
ROWS, WIDTH = 8, 6

Body = Callable[[tf.Tensor, Any], tf.Tensor]

tensoropt.enable_graph_mode()


class Cell:
    """A recurrent cell as ``dynamic_rnn`` wants it, whose weights are part of a variable."""

    output_size = state_size = 2

    def __init__(self, weights: tf.Tensor) -> None:
        self._weights = weights

    def zero_state(self, batch_size: Any, dtype: tf.DType) -> tf.Tensor:
        """The state before the first step."""
        return tf.zeros([batch_size, 2], dtype)

    def get_initial_state(self, inputs: Any, batch_size: Any, dtype: tf.DType) -> tf.Tensor:
        """The state before the first step."""
        del inputs
        return self.zero_state(batch_size, dtype)

    def call(self, values: tf.Tensor, state: tf.Tensor, scope: Any = None) -> Any:
        """Output and state after a step."""
        del scope
        new = tf.tanh(values + tf.matmul(state, self._weights[:2, :2]))
        return new, new

    __call__ = call


def loop(step: Callable[[tf.Tensor], tf.Tensor], values: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, step(v)), [0, values])[1]


def stacked(values: tf.Tensor, weights: Any) -> tf.Tensor:
    del weights
    array = v1.TensorArray(tf.float64, size=3, element_shape=[ROWS, WIDTH])
    written = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, a: (i + 1, a.write(i, values * tf.cast(i, tf.float64))),
        [0, array],
    )[1]
    return tf.reduce_sum(written.stack(), 0)


def recurrent(values: tf.Tensor, weights: Any) -> tf.Tensor:
    steps = tf.reshape(values, [-1, 3, 2])
    cell = Cell(tf.convert_to_tensor(weights))
    return v1.nn.dynamic_rnn(cell, steps, dtype=tf.float64)[0][:, -1]


BODIES: dict[str, Body] = {
    "cond": lambda h, _: tf.cond(tf.reduce_sum(h) > 0, lambda: 2 * h, lambda: tf.tanh(h) + 1),
    "cond on a variable": lambda h, w: tf.cond(
        tf.reduce_sum(h) > 0, lambda: tf.matmul(h, w), lambda: tf.tanh(tf.matmul(h, w))
    ),
    "while": lambda h, _: loop(tf.tanh, h),
    "while on a variable": lambda h, w: loop(lambda v: tf.tanh(tf.matmul(v, w)), h),
    "tensor array": stacked,
    "dynamic_rnn": recurrent,
    "map_fn": lambda h, _: tf.map_fn(lambda row: 2 * tf.tanh(row), h),
    "scan": lambda h, _: tf.scan(lambda total, row: 0.5 * total + row, h),
    "case": lambda h, _: tf.case(
        [(tf.reduce_sum(h) > 100, lambda: h)], default=lambda: tf.sin(h), exclusive=True
    ),
    "switch_case": lambda h, _: tf.switch_case(
        tf.cast(tf.reduce_sum(h) > 0, tf.int32), [lambda: 2 * h, lambda: tf.tanh(h)]
    ),
}


def script(body: Body, resource: bool, steps: int = 3) -> Script:
    random = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        images = v1.placeholder(tf.float64, [None, WIDTH], name="images")
        initializer = v1.random_normal_initializer(stddev=0.3, seed=1)
        weights = v1.get_variable("weights", [WIDTH, WIDTH], tf.float64, initializer)
        loss = tf.reduce_mean(tf.square(body(tf.matmul(images, weights), weights)))
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    feeds = tuple({"images": random.normal(size=(ROWS, WIDTH))} for _ in range(steps))
    return Script(graph, train.name, loss.name, feeds)


@pytest.mark.parametrize(
    ("name", "resource", "strategies"),
    [
        *((name, True, 1) for name in BODIES),
        *((name, False, 1) for name in BODIES if name.endswith("on a variable")),
        *(proof(name, True, 2) for name in BODIES),
        *(proof(name, False, 1) for name in BODIES if not name.endswith("on a variable")),
    ],
)
def test_gradients_pass_through(name: str, resource: bool, strategies: int) -> None:
    written = script(BODIES[name], resource)
    truth = train_plain(written)
    # References are the older form of the same variables.
    mesh = Mesh.of(4 if resource else 2)
    graph = written.imported()
    choices = strategy_choices(graph, mesh, BATCHED)
    random = np.random.default_rng(zlib.crc32(name.encode()))
    for number in range(strategies):
        drawn = draw(graph, choices, mesh, random)
        found = train_parallel(written, mesh, drawn.numbers, random_prices(number), BATCHED)
        assert worst_error(found, truth) <= 1e-10, drawn.numbers


def test_a_branch_changes_a_variable() -> None:
    """Branches count and reset variables; a variable stored in pieces is trained beside them."""

    def body(hidden: tf.Tensor, weights: Any) -> tf.Tensor:
        del weights
        count = v1.get_variable("count", [], tf.float64, v1.zeros_initializer(), trainable=False)
        counted = tf.cond(
            tf.equal(count.read_value(), 2.0),
            lambda: count.assign(0.0).read_value(),
            lambda: count.assign_add(1.0).read_value(),
        )
        with tf.control_dependencies([counted]):
            return hidden * (1 + tf.stop_gradient(counted))

    written = script(body, True, steps=5)
    truth = train_plain(written)
    mesh = Mesh.of(4)
    graph = written.imported()
    choices = strategy_choices(graph, mesh, BATCHED)
    drawn = draw(graph, choices, mesh, np.random.default_rng(0))
    found = train_parallel(written, mesh, drawn.numbers, random_prices(0), BATCHED)
    assert worst_error(found, truth) <= 1e-10


def test_switch_and_merge_are_refused() -> None:
    graph = tf.Graph()
    control_flow_v2_toggles.disable_control_flow_v2()
    try:
        with graph.as_default():
            value = v1.placeholder(tf.float32, [], name="value")
            result = tf.cond(value > 0, lambda: value, lambda: -value)
    finally:
        v1.enable_control_flow_v2()
    with pytest.raises(GraphError, match="enable_control_flow_v2"):
        import_graph(graph, [result.op.name], {"value": ()})


@pytest.mark.parametrize("disable", [tensoropt.disable_v2_behavior, v1.disable_v2_behavior])
def test_scripts_that_disable_v2_behaviour_keep_their_loops_readable(disable: Any) -> None:
    disable()
    try:
        assert v1.control_flow_v2_enabled()
        assert not v1.resource_variables_enabled()
    finally:
        v1.enable_resource_variables()


@pytest.mark.parametrize("names", [tensoropt, v1])
def test_control_flow_stays_functional(names: Any) -> None:
    names.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        value = v1.placeholder(tf.float32, [], name="value")
        tf.cond(value > 0, lambda: value, lambda: -value)
    assert "Switch" not in {operation.type for operation in graph.get_operations()}
