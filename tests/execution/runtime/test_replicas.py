"""What several ranks hold stays equal, bit for bit, and a difference is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.errors import RankMismatchError
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.world.variables import VariableStore
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import executor_of, random_prices

v1 = tf.compat.v1
BATCH, STEPS, WIDTH = 32, 16, 32

tensoropt.enable_graph_mode()


class Cell:
    """A recurrent cell as ``dynamic_rnn`` wants it, with dropout of what it reads."""

    output_size = state_size = WIDTH

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def get_initial_state(self, inputs: Any, batch_size: Any, dtype: tf.DType) -> tf.Tensor:
        """The state before the first step."""
        del inputs
        return tf.zeros([batch_size, WIDTH], dtype)

    def __call__(self, values: tf.Tensor, state: tf.Tensor, scope: Any = None) -> Any:
        """Output and state after a step."""
        del scope
        new = tf.tanh(tf.nn.dropout(values, rate=0.5) + tf.matmul(state, self._kernel))
        return new, new


@pytest.fixture(scope="module")
def trained() -> Iterator[Executor]:
    """An executor on two devices that has trained a recurrent network for some steps."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [BATCH, STEPS, WIDTH], name="x")
        kernel = v1.get_variable("kernel", [WIDTH, WIDTH], initializer=v1.ones_initializer())
        outputs, _ = v1.nn.dynamic_rnn(Cell(kernel), x, dtype=tf.float32)
        train = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_mean(tf.square(outputs - 1.0)))
    executor = executor_of(graph, Mesh.of(2), {}, random_prices(1))
    executor.configure(v1.ConfigProto(inter_op_parallelism_threads=8))
    random = np.random.default_rng(0)
    for _ in range(5):
        feed = {"x": random.normal(size=(BATCH, STEPS, WIDTH)).astype(np.float32)}
        executor.run([], [train.name], feed)
    yield executor
    executor.close()


def store(executor: Executor) -> VariableStore:
    return executor.variables.store


def test_what_is_drawn_in_a_loop_is_the_same_on_all_ranks(trained: Executor) -> None:
    """TensorFlow would run its iterations side by side, and draw for any of them first."""
    kernel = store(trained).layouts["kernel"]
    assert kernel == Layout.replicated(len(kernel.dims))
    trained.variables.check_replicas()


def test_a_difference_names_the_variable_and_the_ranks(trained: Executor) -> None:
    with trained._session.graph.as_default():
        odd = store(trained)["kernel"][1]
        more = tf.fill([WIDTH, WIDTH], np.float32(1e-3))
        change = tf.raw_ops.AssignAddVariableOp(resource=odd, value=more)
    trained._session.opened.run(change)
    with pytest.raises(RankMismatchError, match=r"'kernel' on rank 1 than on rank 0\."):
        trained.variables.check_replicas()
