"""``dynamic_rnn`` and its kin, split by examples, against TensorFlow's own loop on one device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.frontend.steps import recurrent_loops
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.parallel.choices.choices import strategy_choices
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import derive
from tensoropt.tensorflow_private import rnn
from tests.oracles.equality import (
    Script,
    draw,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.proofs import proof

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed:UserWarning"),
]

plain = tensorflow.compat.v1
cells = plain.nn.rnn_cell
ROWS, STEPS, WIDTH = 8, 3, 2
Model = Callable[[Any, Any], Any]


class Custom:
    """A cell of a function of inputs and state, which is its output and new state."""

    output_size = state_size = WIDTH

    def __init__(self, compute: Callable[[Any, Any], Any]) -> None:
        self._compute = compute

    def get_initial_state(self, inputs: Any, batch_size: Any, dtype: Any) -> Any:
        """The state before the first step."""
        del inputs
        return tf.zeros([batch_size, WIDTH], dtype)

    zero_state = get_initial_state

    def call(self, values: Any, state: Any) -> Any:
        """Output and state after a step."""
        new = tf.tanh(self._compute(tf.matmul(values, square("kernel")), state))
        return new, new

    __call__ = call


def square(name: str) -> Any:
    return tf.get_variable(name, [WIDTH, WIDTH], tf.float64)


def run(cell: Any, x: Any, lengths: Any = None, **options: Any) -> Any:
    return tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float64, **options)


def custom(compute: Callable[[Any, Any], Any]) -> Model:
    return lambda x, _: run(Custom(compute), x)


def both_ways(x: Any, lengths: Any) -> Any:
    ways = cells.LSTMCell(4, use_peepholes=True, num_proj=3), cells.GRUCell(3)
    return tf.nn.bidirectional_dynamic_rnn(*ways, x, lengths, dtype=tf.float64)


def layers_from_a_state(x: Any, lengths: Any) -> Any:
    cell = cells.MultiRNNCell([cells.LSTMCell(4), cells.ResidualWrapper(cells.BasicRNNCell(4))])
    start = tf.matmul(x[:, 0], tf.get_variable("start", [WIDTH, 4], tf.float64))
    state = (cells.LSTMStateTuple(start, tf.tanh(start)), 2 * start)
    return run(cell, x, lengths, initial_state=state)


def time_first(x: Any, _: Any) -> Any:
    return run(cells.BasicRNNCell(4), tf.transpose(x, [1, 0, 2]), time_major=True)


def mean_of_all(x: Any, _: Any) -> Any:
    """The cell reads a tensor that is summed over the ranks' examples before the loop."""
    mean = tf.reduce_mean(x, [0, 1], keepdims=True)[0] * tf.ones([WIDTH, 1], tf.float64)
    return run(Custom(lambda values, state: tf.matmul(values, mean) + state), x)


def clipped(values: Any) -> Any:
    def own(values: Any) -> Any:
        return tf.identity(values), lambda gradient: gradient / tf.norm(gradient)

    return tensorflow.custom_gradient(own)(values)


SPLIT: list[Model] = [both_ways, layers_from_a_state, time_first, mean_of_all]
WHOLE: dict[str, Model] = {
    "mean": custom(lambda values, state: values + state - tf.reduce_mean(values, 0)),
    "number of examples": custom(
        lambda values, state: values / tf.cast(tf.shape(values)[0], tf.float64) + state
    ),
    "a batch of one size": custom(lambda values, state: tf.reshape(values, [ROWS, WIDTH]) + state),
    "own gradient": custom(lambda values, state: clipped(values + state)),
    "dropout": lambda x, _: run(cells.DropoutWrapper(cells.GRUCell(2), 0.5, dtype=tf.float64), x),
    "rows from outside": lambda x, _: run(Custom(lambda v, s: v + s + x[:, 0]), x),
}


def script(model: Model, rows: int | None = None) -> Script:
    random = np.random.default_rng(0)
    initializer = tf.random_normal_initializer(stddev=0.5, seed=1)
    with plain.Graph().as_default() as graph, tf.variable_scope("", initializer=initializer):
        x = tf.placeholder(tf.float64, [rows, STEPS, WIDTH], name="x")
        lengths = tf.placeholder(tf.int32, [rows], name="lengths")
        results = tensorflow.nest.flatten(model(x, lengths))
        loss = tf.add_n([tf.reduce_mean(tf.square(each)) for each in results])
        train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    feeds: tuple[dict[str, Any], ...] = tuple(
        {
            "x": random.normal(size=(ROWS, STEPS, WIDTH)),
            "lengths": np.array([0, 1, 2, 3, 0, 0, 1, 2], np.int32),
        }
        for _ in range(2)
    )
    return Script(graph, train.name, loss.name, feeds)


@contextmanager
def tensorflows_own(monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(rnn, "_dynamic_rnn_loop", recurrent_loops._loop)
        yield


def loops(script: Script) -> list[str]:
    """Types of the operators that run loops."""
    return [each.type for each in script.imported() if each.type in ("PartitionedCall", *WHILE)]


WHILE = "StatelessWhile", "While"


@pytest.mark.parametrize(
    ("model", "strategies"),
    [
        *((model, 1) for model in SPLIT if model is not both_ways),
        *(proof(model, 2) for model in SPLIT),
    ],
)
def test_random_strategies_train_alike(
    model: Model, strategies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tensorflows_own(monkeypatch):
        truth = train_plain(script(model))
    written, mesh, batched = script(model), Mesh.of(2), frozenset({"x", "lengths"})
    assert set(loops(written)) == {"PartitionedCall"}
    assert worst_error(train_plain(written), truth) <= 1e-12
    graph = written.imported()
    choices = strategy_choices(graph, mesh, batched)
    options = {name: len(each.options) for each in choices for name in each.members}
    assert all(options[each.name] > 1 for each in graph if each.type == "PartitionedCall")
    random = np.random.default_rng(3)
    for number in range(strategies):
        drawn = draw(graph, choices, mesh, random)
        found = train_parallel(written, mesh, drawn.numbers, random_prices(number), batched)
        assert worst_error(found, truth) <= 1e-10, drawn.numbers


@pytest.mark.parametrize("name", WHOLE)
def test_a_cell_that_mixes_examples_stays_whole(name: str, monkeypatch: Any) -> None:
    """The variables of a cell are made once, with their names, though the cell was tried before."""
    with tensorflows_own(monkeypatch):
        own = script(WHOLE[name], ROWS)
    written = script(WHOLE[name], ROWS)
    assert loops(written) == loops(own)
    assert loops(written)[0] in WHILE
    assert written.variables == own.variables


def test_two_devices_do_half_of_the_loop_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lengths of sequences, and the numbers of steps, differ between runs."""

    def model() -> Any:
        initializer = tf.random_normal_initializer(stddev=0.5, seed=1)
        with tf.variable_scope("", initializer=initializer, regularizer=tensorflow.nn.l2_loss):
            x = tf.placeholder(tf.float64, [None, None, WIDTH], name="x")
            lengths = tf.placeholder(tf.int32, [None], name="lengths")
            outputs, state = run(cells.LSTMCell(64), x, lengths)
            losses = [tf.reduce_mean(tf.square(each)) for each in (outputs, state.h)]
            loss = tf.add_n([*losses, *tf.losses.get_regularization_losses()])
            return loss, tf.train.AdamOptimizer(0.1).minimize(loss)

    random = np.random.default_rng(0)
    feeds = [
        {
            "x:0": random.normal(size=(ROWS, steps, WIDTH)),
            "lengths:0": random.integers(0, steps + 1, ROWS).astype(np.int32),
        }
        for steps in (5, 5, 7, 2)
    ]
    with tensorflows_own(monkeypatch), plain.Graph().as_default(), plain.Session() as session:
        fetches = model()
        session.run(plain.global_variables_initializer())
        truth = [session.run(fetches, feed)[0] for feed in feeds]
    tf.init(devices=2)
    fetches = model()
    shapes = {"x": (ROWS, 5, WIDTH), "lengths": (ROWS,)}
    plan = tf.find_strategy(shapes=shapes, algorithm="data_parallel")
    (call,) = (name for name in plan.configurations if name.endswith("PartitionedCall"))
    loop = import_graph(plain.get_default_graph(), [fetches[1].name], shapes)[call]
    derivation = derive(loop.type, loop.input_specs, loop.outputs, loop.attributes)
    assert plan.configurations[call].describe(derivation, plan.mesh) == "b/2"
    assert derivation.flops == 2 * ROWS * 5 * (WIDTH + 64 + 1) * 4 * 64
    tf.build_execution_graph(plan=plan)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        losses = [session.run(fetches, feed)[0] for feed in feeds]
    assert losses == pytest.approx(truth, rel=1e-12)


def test_names_of_tensorflow_are_ours_once_cells_are_loaded() -> None:
    """The cells are those of tf_keras, which imports ``tensorflow.compat.v1``."""
    assert cells.LSTMCell
    assert tensorflow.compat.v1.gradients is tf.gradients
    assert tensorflow.compat.v1.disable_control_flow_v2 is tf.disable_control_flow_v2
