"""Optimizers and what scripts do with gradients, under random strategies, against one device."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.world.world import SingleProcessWorld
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.parallel.choices.choices import configurations_of, strategy_choices
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep, plan_reshard
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
train = v1.train

BATCHED = frozenset({"images", "labels"})
BATCH, INPUTS, HIDDEN, CLASSES = 12, 12, 24, 12
TOLERANCE = {tf.float32: 1e-4, tf.float64: 1e-10}

Minimize = Callable[[tf.Tensor], tf.Operation]

tensoropt.enable_graph_mode()


def model(dtype: tf.DType) -> tf.Tensor:
    """A two-layer perceptron's loss."""
    images = v1.placeholder(dtype, [None, INPUTS], name="images")
    labels = v1.placeholder(tf.int32, [None], name="labels")
    hidden = dense(images, HIDDEN, "hidden", seed=1)
    logits = dense(tf.nn.tanh(hidden), CLASSES, "logits", seed=2)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(each)


def layer(dtype: tf.DType) -> tf.Tensor:
    """The loss of one layer: what updates its variables is what matters."""
    images = v1.placeholder(dtype, [None, INPUTS], name="images")
    labels = v1.placeholder(tf.int32, [None], name="labels")
    logits = dense(images, CLASSES, "logits", seed=2)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(each)


def dense(values: tf.Tensor, width: int, scope: str, seed: int) -> tf.Tensor:
    """A layer with variables of its own."""
    with v1.variable_scope(scope):
        weights = v1.get_variable(
            "weights",
            [values.shape[-1], width],
            values.dtype,
            v1.random_normal_initializer(stddev=0.3, seed=seed),
        )
        bias = v1.get_variable("bias", [width], values.dtype, v1.zeros_initializer())
        return tf.matmul(values, weights) + bias


def script(
    minimize: Minimize,
    dtype: tf.DType = tf.float64,
    resource: bool = False,
    build: Callable[[tf.DType], tf.Tensor] = model,
    steps: int = 3,
) -> Script:
    """A training script whose last line is ``minimize(loss)``."""
    random = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        loss = build(dtype)
        operation = minimize(loss)
    feeds = tuple(
        {
            "images": random.normal(size=(BATCH, INPUTS)).astype(dtype.as_numpy_dtype),
            "labels": random.integers(CLASSES, size=BATCH).astype(np.int32),
        }
        for _ in range(steps)
    )
    return Script(graph, operation.name, loss.name, feeds)


def check(written: Script, tolerance: float, devices: int = 2, strategies: int = 2) -> None:
    """Some random strategies, and the replicated one, train to the same losses and variables."""
    truth = train_plain(written)
    assert np.all(np.isfinite(truth.losses))
    mesh = Mesh.of(devices)
    graph = written.imported()
    batched = BATCHED & {operator.name for operator in graph}
    choices = strategy_choices(graph, mesh, batched)
    random = np.random.default_rng(zlib.crc32(written.train.encode()))
    for number in range(strategies):
        drawn = draw(graph, choices, mesh, random)
        found = train_parallel(written, mesh, drawn.numbers, random_prices(number), batched)
        assert worst_error(found, truth) <= tolerance, drawn.numbers


class SignedDescent(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """An optimizer of a script's own, written with tf.assign_sub."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__(False, "SignedDescent")
        self._rate = learning_rate

    def _create_slots(self, var_list: list[Any]) -> None:
        for variable in var_list:
            self._zeros_slot(variable, "mean", self._name)

    def _apply_dense(self, gradient: tf.Tensor, variable: Any) -> tf.Operation:
        mean = self.get_slot(variable, "mean")
        updated = v1.assign(mean, 0.5 * mean + 0.5 * gradient)
        step = self._rate * tf.sign(gradient) * tf.sqrt(tf.abs(updated) + 1e-3)
        return tf.group(v1.assign_sub(variable, step), updated)

    _resource_apply_dense = _apply_dense


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "gradient descent": lambda: train.GradientDescentOptimizer(0.1),
    "momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adam": lambda: train.AdamOptimizer(0.01),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "adagrad, dual averaging": lambda: train.AdagradDAOptimizer(
        0.1, train.get_or_create_global_step(), l1_regularization_strength=0.001
    ),
    "adadelta": lambda: train.AdadeltaOptimizer(1.0, epsilon=1e-3),
    "rmsprop": lambda: train.RMSPropOptimizer(0.01, momentum=0.9),
    "rmsprop, centered": lambda: train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    "ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.001),
    "proximal descent": lambda: train.ProximalGradientDescentOptimizer(
        0.1, l1_regularization_strength=0.001
    ),
    "proximal adagrad": lambda: train.ProximalAdagradOptimizer(
        0.1, l2_regularization_strength=0.001
    ),
    "of the script's own": lambda: SignedDescent(0.01),
}
FLOAT32_ONLY = ("proximal descent", "proximal adagrad")  # as TensorFlow has them
IN_FLOAT32 = ("momentum", "nesterov")


@pytest.mark.parametrize(
    ("name", "resource", "strategies"),
    [
        *((name, resource, 1) for name in OPTIMIZERS for resource in (False, True)),
        *(proof(name, True, 2) for name in OPTIMIZERS),
    ],
)
def test_an_optimizer_trains_as_on_one_device(name: str, resource: bool, strategies: int) -> None:
    def minimize(loss: tf.Tensor) -> tf.Operation:
        return OPTIMIZERS[name]().minimize(loss, train.get_or_create_global_step())

    dtype = tf.float32 if name in FLOAT32_ONLY else tf.float64
    # References are the older form of the same variables.
    written = script(minimize, dtype, resource, build=layer)
    check(written, TOLERANCE[dtype], strategies=strategies)


@pytest.mark.parametrize("name", IN_FLOAT32)
def test_an_optimizer_trains_in_float32(name: str) -> None:
    written = script(lambda loss: OPTIMIZERS[name]().minimize(loss), tf.float32)
    check(written, TOLERANCE[tf.float32], devices=6, strategies=1)


def clipped(clip: Callable[[list[tf.Tensor]], list[tf.Tensor]]) -> Minimize:
    """Momentum on gradients that a script changes between compute and apply."""

    def minimize(loss: tf.Tensor) -> tf.Operation:
        optimizer = train.MomentumOptimizer(0.1, 0.9)
        pairs = optimizer.compute_gradients(loss)
        gradients = clip([gradient for gradient, _ in pairs])
        variables = [variable for _, variable in pairs]
        return optimizer.apply_gradients(zip(gradients, variables, strict=True))

    return minimize


CLIPPINGS: dict[str, Callable[[list[tf.Tensor]], list[tf.Tensor]]] = {
    "global norm": lambda gs: list(tf.clip_by_global_norm(gs, 0.1)[0]),
    "norm": lambda gs: [tf.clip_by_norm(g, 0.05) for g in gs],
    "value": lambda gs: [tf.clip_by_value(g, -0.01, 0.01) for g in gs],
    "scaled": lambda gs: [g * 0.5 + 0.001 for g in gs],
}


@pytest.mark.parametrize("name", CLIPPINGS)
def test_changed_gradients_train_as_on_one_device(name: str) -> None:
    check(script(clipped(CLIPPINGS[name])), TOLERANCE[tf.float64])


def test_gradients_that_a_script_asks_for_itself() -> None:
    def minimize(loss: tf.Tensor) -> tf.Operation:
        variables = v1.trainable_variables()
        gradients = v1.gradients(loss, variables)
        penalty = tf.add_n([tf.reduce_sum(g * g) for g in gradients])
        updates = [
            v1.assign_sub(v, 0.1 * g * (1.0 + penalty))
            for v, g in zip(variables, gradients, strict=True)
        ]
        return tf.group(*updates)

    check(script(minimize), TOLERANCE[tf.float64])


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "exponential": lambda step: train.exponential_decay(0.1, step, 2, 0.5, staircase=True),
    "piecewise": lambda step: train.piecewise_constant(step, [1, 2], [0.1, 0.05, 0.01]),
    "polynomial": lambda step: train.polynomial_decay(0.1, step, 3, 0.01),
    "cosine": lambda step: train.cosine_decay(0.1, step, 4),
    "inverse time": lambda step: train.inverse_time_decay(0.1, step, 1, 0.5),
    "natural exponential": lambda step: train.natural_exp_decay(0.1, step, 1, 0.5),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_follows_the_global_step(name: str) -> None:
    def minimize(loss: tf.Tensor) -> tf.Operation:
        step = train.get_or_create_global_step()
        rate = SCHEDULES[name](step)
        return train.MomentumOptimizer(rate, 0.9).minimize(loss, global_step=step)

    # The schedules themselves are float32.
    check(script(minimize, build=layer), 1e-7, strategies=1)


def test_two_optimizers_alternate() -> None:
    """A generator and a discriminator, each trained by its own optimizer on its own variables."""
    random = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default():
        images = v1.placeholder(tf.float64, [None, INPUTS], name="images")
        with v1.variable_scope("generator"):
            fake = dense(tf.nn.tanh(dense(images, HIDDEN, "first", 1)), INPUTS, "second", 2)
        real_score, fake_score = (discriminate(x) for x in (images, fake))
        labels = tf.ones_like(real_score)
        entropy = tf.nn.sigmoid_cross_entropy_with_logits
        d_loss = tf.reduce_mean(
            entropy(labels=labels, logits=real_score)
            + entropy(labels=tf.zeros_like(labels), logits=fake_score)
        )
        g_loss = tf.reduce_mean(entropy(labels=labels, logits=fake_score))
        d_train = train.AdamOptimizer(0.01).minimize(
            d_loss, var_list=v1.trainable_variables("discriminator"), name="d_train"
        )
        g_train = train.MomentumOptimizer(0.1, 0.9).minimize(
            g_loss, var_list=v1.trainable_variables("generator"), name="g_train"
        )
    feeds = [{"images": random.normal(size=(BATCH, INPUTS))} for _ in range(4)]
    turns = [d_train, g_train, d_train, g_train]

    with v1.Session(graph=graph) as session:
        with graph.as_default():
            session.run(v1.global_variables_initializer())
        variables = graph.get_collection("variables")
        names = [graph.as_graph_element(v, allow_operation=False).name for v in variables]
        for turn, feed in zip(turns, feeds, strict=True):
            session.run(turn, {f"{name}:0": value for name, value in feed.items()})
        truth = dict(zip(names, session.run(names), strict=True))

    mesh = Mesh.of(2)
    logical = import_graph(graph, [d_train.name, g_train.name], {"images": (BATCH, INPUTS)})
    choices = strategy_choices(logical, mesh, frozenset({"images"}))
    for number in range(2):
        drawn = draw(logical, choices, mesh, np.random.default_rng(number))
        executor = executor_of(graph, mesh, configurations_of(choices, drawn.numbers), number)
        for turn, feed in zip(turns, feeds, strict=True):
            executor.run([], [turn.name], feed)
        found = executor.run(names, [], {})
        executor.close()
        for name in names:
            np.testing.assert_allclose(found[name], truth[name], rtol=1e-9, atol=1e-12)


def discriminate(values: tf.Tensor) -> tf.Tensor:
    """A score per row; its variables are the same at every call."""
    with v1.variable_scope("discriminator", reuse=v1.AUTO_REUSE):
        return dense(tf.nn.tanh(dense(values, HIDDEN, "first", 3)), 1, "second", 4)


def executor_of(
    graph: tf.Graph, mesh: Mesh, configurations: dict[str, Configuration], number: int
) -> Executor:
    """An executor of all ranks in this process, reshardings priced at random."""
    price = random_prices(number)

    def steps(shape: Any, dtype: str, source: Layout, target: Layout) -> tuple[ReshardStep, ...]:
        if source == target:
            return ()
        return plan_reshard(mesh, tuple(shape), tf.as_dtype(dtype).size, source, target, price)

    pipeline = Pipeline.of_mesh(SingleProcessWorld(mesh), configurations, steps)
    return Executor(graph, pipeline, StepOptions(BATCHED, 1), Agreement(None))


def accumulated(loss: tf.Tensor) -> tf.Operation:
    """Two steps' gradients gathered in variables before they are applied."""
    optimizer = train.GradientDescentOptimizer(0.1)
    pairs = optimizer.compute_gradients(loss)
    sums = [
        v1.get_variable(
            f"sum{n}", v.shape, v.dtype.base_dtype, v1.zeros_initializer(), trainable=False
        )
        for n, (_, v) in enumerate(pairs)
    ]
    gathered = [v1.assign_add(s, g) for s, (g, _) in zip(sums, pairs, strict=True)]
    with tf.control_dependencies([tf.convert_to_tensor(g) for g in gathered]):
        return optimizer.apply_gradients(
            [(s.read_value() * 0.5, v) for s, (_, v) in zip(sums, pairs, strict=True)]
        )


def averaged(loss: tf.Tensor) -> tf.Operation:
    """Moving averages of all variables, after each step, with a decay that follows the step."""
    step = train.get_or_create_global_step()
    updated = train.MomentumOptimizer(0.1, 0.9).minimize(loss, global_step=step)
    averages = train.ExponentialMovingAverage(0.9, num_updates=step)
    with tf.control_dependencies([updated]):
        return averages.apply(v1.trainable_variables())


def copied(loss: tf.Tensor) -> tf.Operation:
    """A frozen copy of the variables, taken after the step (as target networks are)."""
    variables = v1.trainable_variables()
    copies = [
        v1.get_variable(
            f"copy{n}", v.shape, v.dtype.base_dtype, v1.ones_initializer(), trainable=False
        )
        for n, v in enumerate(variables)
    ]
    updated = train.GradientDescentOptimizer(0.1).minimize(loss, var_list=variables)
    with tf.control_dependencies([updated]):
        return tf.group(
            *(
                v1.assign(c, 0.9 * c + 0.1 * v.read_value())
                for c, v in zip(copies, variables, strict=True)
            )
        )


def counted(loss: tf.Tensor) -> tf.Operation:
    """Statistics among UPDATE_OPS that run before the step, as batch normalisation's do."""
    image_mean = tf.reduce_mean(v1.get_default_graph().get_tensor_by_name("images:0"), axis=0)
    moving = v1.get_variable(
        "moving", [INPUTS], loss.dtype, v1.zeros_initializer(), trainable=False
    )
    v1.add_to_collection(
        v1.GraphKeys.UPDATE_OPS, v1.assign_sub(moving, 0.1 * (moving - image_mean))
    )
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        return train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def regularised(loss: tf.Tensor) -> tf.Operation:
    """A penalty on the variables and one that the script's layers collected."""
    penalty = tf.add_n([tf.nn.l2_loss(v) for v in v1.trainable_variables()])
    v1.losses.add_loss(1e-3 * penalty)
    v1.losses.add_loss(
        1e-3 * tf.reduce_sum(tf.abs(v1.trainable_variables()[0])),
        v1.GraphKeys.REGULARIZATION_LOSSES,
    )
    total = loss + tf.cast(v1.losses.get_total_loss(), loss.dtype)
    return train.GradientDescentOptimizer(0.1).minimize(total)


HABITS = {f.__name__: f for f in (accumulated, averaged, copied, counted, regularised)}


# What reads a reference variable "after" an update races with it, in TensorFlow, too.
RACING = ("averaged",)
HABIT_CASES = [(n, r) for n in HABITS for r in (False, True) if r or n not in RACING]


@pytest.mark.parametrize(
    ("name", "resource", "strategies"),
    [*((*case, 1) for case in HABIT_CASES), *(proof(name, True, 2) for name in HABITS)],
)
def test_a_habit_of_scripts_trains_as_on_one_device(
    name: str, resource: bool, strategies: int
) -> None:
    check(script(HABITS[name], resource=resource), TOLERANCE[tf.float64], strategies=strategies)


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_tied_weights_get_both_gradients(resource: bool) -> None:
    def tied(dtype: tf.DType) -> tf.Tensor:
        images = v1.placeholder(dtype, [None, INPUTS], name="images")
        labels = v1.placeholder(tf.int32, [None], name="labels")
        weights = v1.get_variable(
            "weights", [INPUTS, HIDDEN], dtype, v1.random_normal_initializer(stddev=0.3, seed=1)
        )
        logits = tf.matmul(tf.nn.tanh(tf.matmul(images, weights)), weights, transpose_b=True)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        return tf.reduce_mean(each)

    written = script(
        lambda loss: train.AdamOptimizer(0.01).minimize(loss), resource=resource, build=tied
    )
    check(written, TOLERANCE[tf.float64])
