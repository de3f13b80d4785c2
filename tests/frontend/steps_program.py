"""Steps of eager TensorFlow under random strategies, in a process of its own.

``python steps_program.py DEVICES`` runs what the user guide shows and prints a line of JSON: by
model how far losses and variables are from those of the same step without TensorOpt, and what
mistakes raise.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.errors import TensorOptError
from tensoropt.plan import choose
from tensoropt.plan.request import Request
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.least_time import single_strategy
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.random_strategies import random_strategies

Arrays = tuple[Any, Any]
STEPS = 4
SEARCHED = choose.search_frontier
layers, optimizers = keras.layers, keras.optimizers


def convolutions() -> tuple[Any, Any, Any, Arrays]:
    """Batch normalisation and momentum."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 4)),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    random = np.random.default_rng(0)
    batch = random.random((16, 8, 8, 4), np.float32), random.integers(0, 10, 16)
    return model, loss, optimizers.SGD(0.05, momentum=0.9), batch


def attention() -> tuple[Any, Any, Any, Arrays]:
    """Embedding, attention, layer normalisation, Adam, clipping."""
    words = keras.Input((6,), dtype="int32")
    values = layers.Embedding(40, 16)(words)
    values = values + layers.MultiHeadAttention(2, 8)(values, values)
    values = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(values))
    model = keras.Model(words, layers.Dense(1)(values))
    random = np.random.default_rng(0)
    batch = random.integers(0, 40, (16, 6)).astype(np.int32), random.random((16, 1), np.float32)
    return model, keras.losses.MeanSquaredError(), optimizers.Adam(0.01, clipnorm=1.0), batch


def recurrent() -> tuple[Any, Any, Any, Arrays]:
    """An unrolled LSTM and RMSprop."""
    model = keras.Sequential([keras.Input((4, 8)), layers.LSTM(12, unroll=True), layers.Dense(1)])
    random = np.random.default_rng(0)
    batch = random.random((16, 4, 8), np.float32), random.random((16, 1), np.float32)
    return model, keras.losses.MeanSquaredError(), optimizers.RMSprop(0.01), batch


MODELS = {each.__name__: each for each in (convolutions, attention, recurrent)}


def step_of(build: Callable[[], Any]) -> tuple[Any, list[Any], Arrays]:
    """A step, what it may change, and a batch."""
    keras.utils.set_random_seed(1)
    model, loss, optimizer, batch = build()
    mean = keras.metrics.Mean()

    @tf.function
    def step(x: Any, y: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, weights), weights, strict=True))
        mean.update_state(value)
        return {"loss": value, "nothing": None}

    optimizer.build(model.trainable_variables)
    return step, [*model.variables, *optimizer.variables, *mean.variables], batch


def random_frontier(seed: int) -> Callable[[Request, int], tuple[GraphProblem, Frontier]]:
    """In place of a search, one random strategy."""

    def search(request: Request, devices: int) -> tuple[GraphProblem, Frontier]:
        problem, _ = SEARCHED(request, devices)
        (strategy,) = random_strategies(problem, 1, seed, [0.6])
        return problem, single_strategy(problem.problem, strategy)

    return search


def worst(build: Callable[[], Any], devices: int, seed: int) -> float:
    """How far a step is from itself without TensorOpt, in losses and what it changes."""
    tensoropt.shutdown()
    tensoropt.init(devices=devices)
    choose.search_frontier = random_frontier(seed)
    plain, truths, batch = step_of(build)
    step, values, _ = step_of(build)
    parallel = tensoropt.parallelize(step, pipeline=False)
    error = 0.0
    for number in range(STEPS):
        some = [each[: 16 if number < STEPS - 1 else 8] for each in batch]  # a smaller last batch
        one, other = plain(*some), parallel(*some)
        assert other["nothing"] is None
        truth = float(one["loss"])
        error = max(error, abs(float(other["loss"]) - truth) / max(1.0, abs(truth)))
        if number == 1:  # the script changes a variable between steps
            for each in (truths, values):
                each[0].assign(each[0] * 0.5)
    for one, other in zip(truths, values, strict=True):
        scale = max(1.0, float(np.abs(one.numpy()).max()))
        error = max(error, float(np.abs(one.numpy() - other.numpy()).max()) / scale)
    return error


def guide() -> None:
    """The step that the user guide shows."""
    text = (Path(__file__).parents[2] / "docs" / "user-guide.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (program,) = [each for each in programs if "tensoropt.parallelize(train_step" in each]
    exec(program, {})


class OtherModel:
    """Not Keras 3's, but a model."""

    def compile(self) -> None:
        """As models have it."""

    def __call__(self, x: Any) -> Any:
        return x


def mistakes() -> dict[str, str]:
    """What is wrong, and the error."""
    weights = tf.Variable(tf.ones([4, 4]))
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2]), tf.constant([3, 4])), 0
    )

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(tf.square(x @ weights))
        weights.assign_sub(0.1 * tape.gradient(value, weights))
        return value

    def through_a_loop(x: Any) -> Any:
        with tf.GradientTape() as tape:
            for _ in tf.range(3):
                x = tf.tanh(x @ weights)
            value = tf.reduce_mean(x)
        weights.assign_sub(0.1 * tape.gradient(value, weights))
        return value

    batch = np.ones((8, 4), np.float32)
    found = {}
    for name, call in {
        "model": lambda: tensoropt.parallelize(OtherModel()),
        "shapes": lambda: tensoropt.parallelize(train, shapes={}),
        "profiling": lambda: tensoropt.parallelize(train, option="profiling"),
        "loop": lambda: tensoropt.parallelize(through_a_loop)(batch),
        "table": lambda: tensoropt.parallelize(lambda x: table.lookup(x))(np.ones(3, np.int32)),
        "graph": lambda: tensoropt.placeholder,
    }.items():
        try:
            call()
        except TensorOptError as error:
            found[name] = f"{type(error).__name__}: {error}"
    before = tf.function(lambda: tf.reduce_sum(weights))
    before()
    evaluate, step = tensoropt.parallelize(lambda x: x @ weights), tensoropt.parallelize(train)
    step(batch)
    assert np.isnan(before().numpy()).all()  # it was traced before, and has no value to read
    truth = batch @ weights.numpy()
    np.testing.assert_allclose(evaluate(batch), truth, rtol=1e-6)
    assert float(before()) == float(tf.reduce_sum(weights))
    assert tf.executing_eagerly()
    return found


if __name__ == "__main__":
    guide()
    choose.preferred = lambda *_: None
    devices = int(sys.argv[1])
    errors = {
        name: worst(build, devices, seed) for seed, (name, build) in enumerate(MODELS.items())
    }
    print(json.dumps({"errors": errors, "mistakes": mistakes()}))
