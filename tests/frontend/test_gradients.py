"""Recorded gradients under random strategies, against plain TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.world.world import SingleProcessWorld
from tensoropt.graph.from_tensorflow import GRADIENT_ATTRIBUTE, import_graph
from tensoropt.parallel.choices.choices import configurations_of, strategy_choices
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep, plan_reshard
from tensoropt.tensor_spec import TensorSpec
from tests.oracles.equality import draw, random_prices
from tests.proofs import proof

RANDOM = np.random.default_rng(1)
BATCH, WIDTH, WORDS = 8, 4, 16
FEEDS: dict[str, npt.NDArray[Any]] = {
    "values": RANDOM.normal(size=(BATCH, WIDTH)),
    "words": RANDOM.integers(WORDS // 2, size=(BATCH, 2)).astype(np.int32),
}


def values() -> Any:
    return tf.placeholder(tf.float64, [BATCH, WIDTH], name="values")


def words() -> Any:
    return tf.placeholder(tf.int32, [BATCH, 2], name="words")


def variable(name: str, shape: list[int], seed: int) -> Any:
    initializer = tf.random_normal_initializer(seed=seed)
    return tf.get_variable(name, shape, tf.float64, initializer)


def dense() -> list[Any]:
    w, b = variable("w", [WIDTH, 12], 1), variable("b", [12], 2)
    loss = tf.reduce_mean(tf.square(tf.nn.tanh(tf.matmul(values(), w) + b)))
    return list(tf.gradients(loss, [w, b]))


def sparse() -> list[Any]:
    """The values and rows of an embedding's gradient; repeated rows stay repeated."""
    table = variable("table", [WORDS, 8], 1)
    bag = tf.reduce_sum(tf.nn.embedding_lookup(table, words()), axis=1)
    (gradient,) = tf.gradients(tf.reduce_mean(tf.square(bag)), [table])
    assert isinstance(gradient, tensorflow.IndexedSlices)
    whole = tf.convert_to_tensor(gradient)
    return [gradient.indices, gradient.values, whole]


def several_losses() -> list[Any]:
    w = variable("w", [WIDTH, 12], 1)
    scores = tf.matmul(values(), w)
    ys = [tf.reduce_sum(scores), tf.reduce_mean(tf.square(scores), axis=0)]
    return list(tf.gradients(ys, [w]))


def grad_ys() -> list[Any]:
    w = variable("w", [WIDTH, 12], 1)
    scores = tf.matmul(values(), w)
    weight = tf.nn.sigmoid(scores) * 2.0
    other = tf.constant(np.linspace(0, 1, 12))
    both = tf.gradients([scores, tf.reduce_sum(scores, axis=0)], [w], grad_ys=[weight, other])
    return [*both, *tf.gradients([scores, tf.reduce_sum(scores)], [w], grad_ys=[weight, None])]


def stop_gradients() -> list[Any]:
    w = variable("w", [WIDTH, 12], 1)
    hidden = tf.matmul(values(), w)
    loss = tf.reduce_sum(hidden * tf.nn.tanh(hidden) + tf.reduce_sum(tf.square(w)))
    held = tf.nn.relu(hidden)
    return [
        *tf.gradients(loss + tf.reduce_sum(held), [w], stop_gradients=[held]),
        *tf.gradients(tf.reduce_sum(hidden * tf.stop_gradient(hidden)), [w]),
    ]


def by_activations() -> list[Any]:
    """The gradient by a tensor in the middle, and by what is fed."""
    w, v = variable("w", [WIDTH, 12], 1), variable("v", [12, 4], 2)
    inputs = values()
    hidden = tf.nn.tanh(tf.matmul(inputs, w))
    loss = tf.reduce_mean(tf.square(tf.matmul(hidden, v)))
    return list(tf.gradients(loss, [hidden, inputs, v]))


def penalty() -> list[Any]:
    """A gradient's gradient, as in the penalty of WGAN-GP."""
    w, v = variable("w", [WIDTH, 12], 1), variable("v", [12, 1], 2)
    inputs = values()
    score = tf.matmul(tf.nn.tanh(tf.matmul(inputs, w)), v)
    (slope,) = tf.gradients(score, [inputs])
    norms = tf.sqrt(tf.reduce_sum(tf.square(slope), axis=1))
    loss = tf.reduce_mean(score) + 10.0 * tf.reduce_mean(tf.square(norms - 1.0))
    return [*tf.gradients(loss, [w, v]), loss]


def clipped() -> list[Any]:
    w, b = variable("w", [WIDTH, 12], 1), variable("b", [12], 2)
    loss = tf.reduce_sum(tf.square(tf.matmul(values(), w) + b))
    gradients, norm = tf.clip_by_global_norm(tf.gradients(loss, [w, b]), 0.5)
    return [*gradients, norm]


CASES = (
    *(dense, sparse, several_losses, grad_ys, stop_gradients, by_activations, penalty, clipped),
)


def fetched_plainly(fetches: list[Any]) -> list[Any]:
    v1 = tensorflow.compat.v1
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        graph = tf.get_default_graph()
        feed = {f"{name}:0": value for name, value in FEEDS.items() if in_graph(graph, name)}
        result: list[Any] = session.run(fetches, feed)
        return result


def in_graph(graph: Any, name: str) -> bool:
    return any(operation.name == name for operation in graph.get_operations())


# References are the older form of the same variables.
@pytest.mark.parametrize(("use_resource", "strategies"), [(True, 1), (False, 1), proof(True, 3)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_gradients_equal_those_of_one_device(
    case: Callable[[], list[Any]], use_resource: bool, strategies: int
) -> None:
    with tf.variable_scope("", use_resource=use_resource):
        fetches = case()
    expected = fetched_plainly(fetches)
    script = tf.get_default_graph()
    mesh = Mesh.of(4)
    feeds = {name: value for name, value in FEEDS.items() if in_graph(script, name)}
    shapes = {name: value.shape for name, value in feeds.items()}
    graph = import_graph(script, [fetch.op.name for fetch in fetches], shapes)
    batched = frozenset(feeds) & {operator.name for operator in graph}
    choices = strategy_choices(graph, mesh, batched)
    for number in range(strategies):
        drawn = draw(graph, choices, mesh, np.random.default_rng(number))
        price = random_prices(number)

        def steps(
            shape: Any,
            dtype: str,
            source: Layout,
            target: Layout,
            price: Callable[[str, tuple[int, ...], int], int] = price,
        ) -> tuple[ReshardStep, ...]:
            if source == target:
                return ()
            itemsize = TensorSpec((), dtype).itemsize
            return plan_reshard(mesh, tuple(shape), itemsize, source, target, price)

        planned = configurations_of(choices, drawn.numbers)
        pipeline = Pipeline.of_mesh(SingleProcessWorld(mesh), planned, steps)
        executor = Executor(script, pipeline, StepOptions(batched, 1), Agreement(None))
        got = executor.run([fetch.name for fetch in fetches], [], feeds)
        executor.close()
        for fetch, right in zip(fetches, expected, strict=True):
            np.testing.assert_allclose(got[fetch.name], right, rtol=1e-9, atol=1e-12)


def test_what_is_not_connected_has_no_gradient() -> None:
    w, b = variable("w", [WIDTH, 12], 1), variable("b", [12], 2)
    loss = tf.reduce_sum(tf.matmul(values(), w))
    found = tf.gradients(loss, [w, b])
    assert found[1] is None
    assert GRADIENT_ATTRIBUTE in found[0].op.node_def.attr
    zero = tensorflow.UnconnectedGradients.ZERO
    (zeros,) = tf.gradients(loss, [b], unconnected_gradients=zero)
    tf.init(devices=2)
    tf.build_execution_graph(plan=tf.find_strategy(fetches=[found[0], zeros]))
    np.testing.assert_array_equal(tf.run(zeros, {"values": FEEDS["values"]}), np.zeros(12))


def test_optimizers_record_their_gradients() -> None:
    w = variable("w", [WIDTH, 12], 1)
    loss = tf.reduce_sum(tf.matmul(values(), w))
    pairs = tf.train.AdamOptimizer().compute_gradients(loss)
    assert [v is w for _, v in pairs] == [True]
    assert GRADIENT_ATTRIBUTE in pairs[0][0].op.node_def.attr
