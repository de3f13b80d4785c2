"""Train an eager step under random strategies and print how far each is from TensorFlow alone.

    python -m tests.oracles.eager.keras_steps MODEL SEED DEVICES:NUMBER...

It prints a line of JSON for each strategy. Models of ``keras.applications`` have images of 32
pixels. Other models are steps of TensorFlow's tutorials: a ``tf.function`` with one tape or two,
steps that ask for static shapes or take ragged or sparse tensors, and an epoch that loops over its
batches. The rest are small compiled models in float32, see `tests.oracles.eager.compiled_models`.

A deep network of batch normalisations magnifies rounding by a factor of a hundred and more from
step to step. TensorFlow's own fifth loss of ResNet50 changes by 0.4 in float32 if the last bit of
the initial values changes. So TensorFlow also trains from such changed values. If the results stay
well within the bar of float32, float32 is the type. Otherwise float64 is the type, and at each step
the bar is the larger of the fixed bar and a multiple of TensorFlow's own change.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.errors import TensorOptError
from tensoropt.planner.offers import strategies
from tensoropt.planner.request import Request
from tensoropt.planner.searches import frontier_search
from tensoropt.planner.searches.frontier_search import problem_of
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.least_time import single_strategy
from tensoropt.search.multilevel.coarse_to_fine import Known
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.solvers import solver
from tests.oracles.eager.compiled_models import COMPILED

__all__ = ["STEPS"]

STEPS = 5
BARS = {"float32": 1e-5, "float64": 1e-10}
CHANGED = 4
"""Number of trainings by TensorFlow from initial values whose last bits are changed."""
SPREADS = 10
"""In float64 a strategy may differ from TensorFlow by this multiple of TensorFlow's own change."""
SHARES = (0.1, 0.4, 0.8)
"""Shares of operators with a random configuration, one for each strategy. The other operators have
the configuration of data parallelism."""

Step = Callable[[Any, Any], Any]
layers = keras.layers


def application(name: str) -> tuple[Step, list[Any], tuple[Any, Any]]:
    """A step of SGD on a model of ``keras.applications``, the variables that it changes, and a
    batch."""
    model = getattr(keras.applications, name)(weights=None, input_shape=(32, 32, 3), classes=10)
    return _classifier(model, keras.optimizers.SGD(1e-3, momentum=0.9), (32, 32, 3))


def quickstart() -> tuple[Step, list[Any], tuple[Any, Any]]:
    """Convolution and dense layers, by Adam."""
    model = keras.Sequential(
        [
            keras.Input((14, 14, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dense(10),
        ]
    )
    return _classifier(model, keras.optimizers.Adam(1e-3), (14, 14, 1), from_logits=True)


def gan() -> tuple[Step, list[Any], tuple[Any, Any]]:
    """A generator and a discriminator, each with a tape and an optimizer."""
    generator = keras.Sequential(
        [
            keras.Input((16,)),
            layers.Dense(4 * 4 * 16, use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(),
            layers.Reshape((4, 4, 16)),
            layers.Conv2DTranspose(8, 5, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(),
            layers.Conv2DTranspose(1, 5, padding="same", use_bias=False, activation="tanh"),
        ]
    )
    discriminator = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(8, 5, strides=2, padding="same"),
            layers.LeakyReLU(),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    entropy = keras.losses.BinaryCrossentropy(from_logits=True)
    models = (generator, discriminator)
    optimizers = [keras.optimizers.Adam(1e-4, epsilon=1e-3) for _ in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        optimizer.build(model.trainable_variables)

    def step(images: Any, noise: Any) -> Any:
        with tf.GradientTape() as of_generator, tf.GradientTape() as of_discriminator:
            made = generator(noise, training=True)
            real, fake = discriminator(images, training=True), discriminator(made, training=True)
            losses = (
                entropy(tf.ones_like(fake), fake),
                entropy(tf.ones_like(real), real) + entropy(tf.zeros_like(fake), fake),
            )
        tapes = (of_generator, of_discriminator)
        for model, optimizer, tape, loss in zip(models, optimizers, tapes, losses, strict=True):
            weights = model.trainable_variables
            gradients = tape.gradient(loss, weights)
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return losses[0] + losses[1]

    random, kind = np.random.default_rng(0), keras.config.floatx()
    batch = random.random((16, 8, 8, 1)).astype(kind), random.normal(size=(16, 16)).astype(kind)
    variables = [each for model in (*models, *optimizers) for each in model.variables]
    return tf.function(step), variables, batch


def static() -> tuple[Step, list[Any], tuple[Any, Any]]:
    """A variational autoencoder, and a loss that compares examples; both ask for static shapes."""
    inner, outer = layers.Dense(12), layers.Dense(8)

    def loss_of(x: Any, y: Any) -> Any:
        mean, spread = tf.split(inner(x), 2, axis=1)
        noise = tf.random.stateless_normal(mean.shape, [1, 2], dtype=mean.dtype)
        made = outer(mean + noise * tf.exp(spread))
        unit = tf.math.l2_normalize(tf.reshape(mean, [mean.shape[0], -1]), axis=1)
        scores = tf.matmul(unit, unit, transpose_b=True) - 9 * tf.eye(x.shape[0], dtype=x.dtype)
        told = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores)
        return tf.reduce_sum((made - x) ** 2) / x.shape[0] + tf.reduce_mean(told)

    inner.build((None, 8))
    outer.build((None, 6))
    weights = [*inner.trainable_variables, *outer.trainable_variables]
    x = np.random.default_rng(0).random((8, 8)).astype(keras.config.floatx())
    return *_trained(loss_of, weights), (x, np.roll(np.arange(8), 1))


def ragged() -> tuple[Step, list[Any], tuple[Any, Any]]:
    """The means of table rows, with another number of rows for each example."""
    table, inner = layers.Embedding(30, 8), layers.Dense(4)
    table.build()
    inner.build((None, 8))

    def loss_of(words: Any, y: Any) -> Any:
        rows = tf.ragged.map_flat_values(lambda each: tf.gather(table.embeddings, each), words)
        return tf.reduce_mean((inner(tf.reduce_mean(rows, axis=1)) - y) ** 2)

    random = np.random.default_rng(0)
    words = [random.integers(0, 30, random.integers(1, 9)).tolist() for _ in range(8)]
    y = random.random((8, 4)).astype(keras.config.floatx())
    weights = [*table.trainable_variables, *inner.trainable_variables]
    return *_trained(loss_of, weights), (tf.ragged.constant(words), y)


def sparse() -> tuple[Step, list[Any], tuple[Any, Any]]:
    """Sparse features through two layers."""
    kind, random = keras.config.floatx(), np.random.default_rng(0)
    weight = tf.Variable(random.normal(size=(20, 8)).astype(kind))
    inner = layers.Dense(4)
    inner.build((None, 8))

    def loss_of(x: Any, y: Any) -> Any:
        return tf.reduce_mean((inner(tf.tanh(tf.sparse.sparse_dense_matmul(x, weight))) - y) ** 2)

    x = random.random((8, 20)) * (random.random((8, 20)) < 0.2)
    batch = tf.sparse.from_dense(x.astype(kind)), random.random((8, 4)).astype(kind)
    return *_trained(loss_of, [weight, *inner.trainable_variables]), batch


def epoch() -> tuple[Step, list[Any], tuple[Any, Any]]:
    """A function that trains an epoch and loops over its batches."""
    inner = layers.Dense(4, activation="tanh")
    inner.build((None, 8))
    weights = inner.trainable_variables
    one, variables = _trained(lambda x, y: tf.reduce_mean((inner(x) - y) ** 2), weights)

    def of_batches(x: Any, y: Any) -> Any:
        loss = tf.zeros([], x.dtype)
        for some, truths in tf.data.Dataset.from_tensor_slices((x, y)).batch(8):
            loss += one(some, truths)
        return loss

    random, kind = np.random.default_rng(0), keras.config.floatx()
    batch = random.random((24, 8)).astype(kind), random.random((24, 4)).astype(kind)
    return tf.function(of_batches), variables, batch


def _trained(loss_of: Step, weights: list[Any]) -> tuple[Step, list[Any]]:
    optimizer = keras.optimizers.Adam(1e-2, epsilon=1e-3)
    optimizer.build(weights)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(x, y)
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    return tf.function(step), [*weights, *optimizer.variables]


def _classifier(
    model: Any, optimizer: Any, shape: tuple[int, ...], from_logits: bool = False
) -> tuple[Step, list[Any], tuple[Any, Any]]:
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
    optimizer.build(model.trainable_variables)

    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        weights = model.trainable_variables
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return loss

    random = np.random.default_rng(0)
    images = random.random((8, *shape)).astype(keras.config.floatx())
    return (
        tf.function(step),
        [*model.variables, *optimizer.variables],
        (images, random.integers(0, 10, 8)),
    )


def random_frontier(
    seed: list[int],
) -> Callable[[Request, int, Known | None], tuple[GraphProblem, Frontier]]:
    """A frontier with one random strategy, near data parallelism or far from it, in place of a
    search."""

    def drawn(request: Request, devices: int, _: Known | None) -> tuple[GraphProblem, Frontier]:
        problem, random = problem_of(request, devices), np.random.default_rng(seed)
        (near,) = solver("data_parallel")(problem).found.strategies
        counts = np.array([len(choice.options) for choice in problem.choices])
        replaced = random.random(counts.size) < random.choice(SHARES)
        strategy = np.where(replaced, random.integers(counts), near)
        return problem, single_strategy(problem.problem, strategy.tolist())

    return drawn


class Trained(NamedTuple):
    """The result of five steps.

    Attributes:
        losses: the loss of each step.
        first: variables after the first step.
        last: variables after the last step.
    """

    losses: list[float]
    first: list[Any]
    last: list[Any]

    def differences(self, truth: Trained) -> Differences:
        """The differences from another training."""
        losses = [_worst([a], [b]) for a, b in zip(self.losses, truth.losses, strict=True)]
        return (*losses, _worst(self.first, truth.first), _worst(self.last, truth.last))


Differences = tuple[float, ...]
"""The largest relative differences: of each step's loss, and of the variables after the first and
the last step."""


class Case:
    """A step with its initial values, in one type."""

    def __init__(self, name: str, dtype: str) -> None:
        keras.config.set_floatx(dtype)
        keras.config.set_dtype_policy(dtype)
        keras.utils.set_random_seed(1)
        steps = (quickstart, gan, static, ragged, sparse, epoch)
        tutorial = {each.__name__: each for each in steps}.get(name)
        self.step, self._variables, self._batch = tutorial() if tutorial else application(name)
        self._start = [each.numpy() for each in self._variables]
        self.dtype = dtype
        self.truth = self.trained(self.step)

    def trained(self, run: Step, changed: int = 0) -> Trained:
        """Train from the initial values. If ``changed`` is a seed, it changes the last bits of
        these values."""
        random = np.random.default_rng(changed)
        for variable, value in zip(self._variables, self._start, strict=True):
            given = value
            if changed and value.dtype.kind == "f" and value.shape:
                signs = random.choice([-1, 1], value.shape)
                given = (value * (1 + signs * np.finfo(value.dtype).eps)).astype(value.dtype)
            variable.assign(given)
        losses = [float(run(*self._batch))]
        first = [each.numpy() for each in self._variables]
        losses += [float(run(*self._batch)) for _ in range(STEPS - 1)]
        return Trained(losses, first, [each.numpy() for each in self._variables])

    def parallel(self) -> tuple[Trained, Any]:
        """Train the step on all devices; return the result and the plan."""
        step = tensoropt.parallelize(self.step, pipeline=False)
        return self.trained(step), step.plan

    def spread(self) -> Differences:
        """The largest differences between TensorFlow's own trainings."""
        found = [self.trained(self.step, seed + 1) for seed in range(CHANGED)]
        each = [one.differences(self.truth) for one in found]
        return tuple(max(at) for at in zip(*each, strict=True))


class CompiledCase:
    """A compiled model in float32, made anew for each training."""

    dtype = "float32"

    def __init__(self, name: str) -> None:
        self._build = COMPILED[name]
        self.truth = self.trained(lambda model: model)[0]

    def trained(self, made: Callable[[Any], Any]) -> tuple[Trained, Any]:
        """Train a model, which may be made parallel; return the result and the plan."""
        keras.utils.set_random_seed(1)
        model, batch = self._build()
        model = made(model)
        losses, first = [], list[Any]()
        for _ in range(STEPS):
            found = model.train_on_batch(*batch)
            losses.append(float(np.ravel(found)[0]))
            first = first or model.get_weights()
        plan = getattr(model.train_function, "plan", None)
        return Trained(losses, first, model.get_weights()), plan

    def parallel(self) -> tuple[Trained, Any]:
        """Train the model on all devices; return the result and the plan."""
        return self.trained(lambda model: tensoropt.parallelize(model, pipeline=False))


def main(name: str, seed: int, runs: list[tuple[int, int]]) -> None:
    """Print a line for each strategy."""
    case = CompiledCase(name) if name in COMPILED else Case(name, "float32")
    spread = case.spread() if isinstance(case, Case) else (0.0,) * (STEPS + 2)
    bars = [BARS["float32"]] * len(spread)
    if max(spread) > BARS["float32"] / SPREADS:
        case = Case(name, "float64")
        spread = case.spread()
        bars = [max(BARS["float64"], SPREADS * each) for each in spread]
    strategies.preferred = lambda *_: None  # not data parallelism where that is as fast
    for devices, number in runs:
        draws = [seed, zlib.crc32(name.encode()), devices, number]
        vars(frontier_search)["_searched"] = random_frontier(draws)
        tensoropt.shutdown()
        tensoropt.init(devices=devices)
        line: dict[str, Any] = {"model": name, "type": case.dtype, "devices": devices}
        line |= {"number": number, "spread": spread, "differences": None, "of_bar": None}
        try:
            trained, plan = case.parallel()
            found = trained.differences(case.truth)
            of_bars = [each / bar for each, bar in zip(found, bars, strict=True)]
            line |= {
                "differences": found,
                "of_bar": float(np.max(of_bars)),
                "plan": str(plan),
            }
        except (tf.errors.OpError, TensorOptError, ValueError, TypeError) as error:
            line["reason"] = f"{type(error).__name__}: {error}"[:400]
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def _worst(found: list[Any], truth: list[Any]) -> float:
    """The largest difference, over the largest value of each tensor, or 1 where that is less; NaN
    where there is one."""
    pairs = [(np.asarray(one), np.asarray(other)) for one, other in zip(found, truth, strict=True)]
    differences = [
        np.abs(one - other).max() / max(1.0, np.abs(other).max())
        for one, other in pairs
        if other.size and other.dtype.kind == "f"
    ]
    return float(np.max(differences))  # which keeps NaN


if __name__ == "__main__":
    _name, _seed, *_runs = sys.argv[1:]
    _pairs = [each.split(":") for each in _runs]
    main(_name, int(_seed), [(int(devices), int(number)) for devices, number in _pairs])
