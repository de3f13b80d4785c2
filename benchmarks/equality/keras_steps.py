"""Train one eager step under random strategies and print how far each is from TensorFlow alone.

    python benchmarks/equality/keras_steps.py MODEL TYPE SEED DEVICES:NUMBER...

Not as a module of its package, whose scripts turn graph mode on. A line of JSON for each strategy.
Models of ``keras.applications`` have images of 32 pixels; the others are steps of TensorFlow's
tutorials: a ``tf.function`` with one tape, and one with two.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Callable
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.errors import TensorOptError
from tensoropt.plan import choose
from tensoropt.plan.frontier_search import problem_of
from tensoropt.plan.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.least_time import single_strategy
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.solvers import solver

__all__ = ["STEPS"]

STEPS = 5
SHARES = (0.1, 0.4, 0.8)
"""Of the operators that get a random configuration, one of these a strategy; others have that of
data parallelism."""

Step = Callable[[Any, Any], Any]
layers = keras.layers


def application(name: str) -> tuple[Step, list[Any], tuple[Any, Any]]:
    """A step of SGD, what it may change, and a batch."""
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


def random_frontier(seed: list[int]) -> Callable[[Request, int], tuple[GraphProblem, Frontier]]:
    """In place of a search, one random strategy near data parallelism, or far from it."""

    def drawn(request: Request, devices: int) -> tuple[GraphProblem, Frontier]:
        problem, random = problem_of(request, devices), np.random.default_rng(seed)
        (near,) = solver("data_parallel")(problem).found.strategies
        counts = np.array([len(choice.options) for choice in problem.choices])
        replaced = random.random(counts.size) < random.choice(SHARES)
        strategy = np.where(replaced, random.integers(counts), near)
        return problem, single_strategy(problem.problem, strategy.tolist())

    return drawn


def main(name: str, dtype: str, seed: int, runs: list[tuple[int, int]]) -> None:
    """Print a line for each strategy."""
    keras.config.set_floatx(dtype)
    keras.utils.set_random_seed(1)
    tutorial = {"quickstart": quickstart, "gan": gan}.get(name)
    step, variables, batch = application(name) if tutorial is None else tutorial()
    first = [each.numpy() for each in variables]

    def trained(run: Step) -> tuple[list[float], list[Any]]:
        for variable, value in zip(variables, first, strict=True):
            variable.assign(value)
        return [float(run(*batch)) for _ in range(STEPS)], [each.numpy() for each in variables]

    truth = trained(step)
    choose.preferred = lambda *_: None  # not data parallelism where that is as fast
    for devices, number in runs:
        draws = [seed, zlib.crc32(name.encode()), devices, number]
        vars(choose)["search_frontier"] = random_frontier(draws)
        tensoropt.shutdown()
        tensoropt.init(devices=devices)
        of_losses = of_variables = split = None
        reason = ""
        try:
            parallel = tensoropt.parallelize(step, pipeline=False)
            found = trained(parallel)
            of_losses, of_variables = _worst(found[0], truth[0]), _worst(found[1], truth[1])
            assert parallel.plan is not None
            split = str(parallel.plan)
        except (tf.errors.OpError, TensorOptError, ValueError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"[:400]
        line = {"model": name, "type": dtype, "devices": devices, "number": number}
        line |= {"losses": of_losses, "variables": of_variables, "reason": reason, "plan": split}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def _worst(found: list[Any], truth: list[Any]) -> float:
    """The largest difference, over the largest value of each tensor, or 1 where that is less."""
    pairs = [(np.asarray(one), np.asarray(other)) for one, other in zip(found, truth, strict=True)]
    return max(
        float(np.abs(one - other).max() / max(1.0, float(np.abs(other).max())))
        for one, other in pairs
        if other.size and other.dtype.kind == "f"
    )


if __name__ == "__main__":
    _name, _dtype, _seed, *_runs = sys.argv[1:]
    _pairs = [each.split(":") for each in _runs]
    main(_name, _dtype, int(_seed), [(int(devices), int(number)) for devices, number in _pairs])
