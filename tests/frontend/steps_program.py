"""Steps of eager TensorFlow under random strategies, in a process of its own.

``python steps_program.py DEVICES FOLDER [NAME]...`` runs what the user guide shows and prints a
line of JSON: by name how far losses and variables are from those of the same step without
TensorOpt, and what mistakes raise. The names that are given are left out.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.errors import TensorOptError
from tensoropt.planner.offers import strategies
from tensoropt.planner.request import Request
from tensoropt.planner.searches import frontier_search
from tensoropt.problem.from_graph import GraphProblem
from tensoropt.search.baselines.least_time import single_strategy
from tensoropt.search.multilevel.coarse_to_fine import Known
from tensoropt.search.pareto.frontier import Frontier
from tensoropt.search.random_strategies import random_strategies

Arrays = tuple[Any, Any]
STEPS = 3
SEARCHED = frontier_search._searched
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
    """Loops of recurrent layers, one of them both ways, and RMSprop."""
    both = layers.Bidirectional(layers.LSTM(8, return_sequences=True, dropout=0.2))
    unit = layers.GRU(12, dropout=0.2)
    model = keras.Sequential([keras.Input((4, 8)), both, unit, layers.Dense(1)])
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


def search_at_random(seed: int) -> Counter[str]:
    """Let all searches find one random strategy; return a counter of these searches."""
    counts: Counter[str] = Counter()

    def search(request: Request, devices: int, _: Known | None) -> tuple[GraphProblem, Frontier]:
        counts["searches"] += 1
        problem = frontier_search.problem_of(request, devices)
        (strategy,) = random_strategies(problem, 1, seed, [0.6])
        return problem, single_strategy(problem.problem, strategy)

    frontier_search._searched = search
    return counts


def worst(build: Callable[[], Any], devices: int, seed: int) -> float:
    """How far a step is from itself without TensorOpt, in losses and what it changes."""
    tensoropt.shutdown()
    tensoropt.init(devices=devices)
    counts = search_at_random(seed)
    plain, truths, batch = step_of(build)
    step, values, _ = step_of(build)
    parallel = tensoropt.parallelize(step, pipeline=False)
    error = 0.0
    for number in range(STEPS):
        is_smaller = build is convolutions and number == STEPS - 1  # the last batch
        some = [each[: 8 if is_smaller else 16] for each in batch]
        one, other = plain(*some), parallel(*some)
        assert other["nothing"] is None
        truth = float(one["loss"])
        error = max(error, abs(float(other["loss"]) - truth) / max(1.0, abs(truth)))
        if number == 1:  # the script changes a variable between steps
            for each in (truths, values):
                each[0].assign(each[0] * 0.5)
    assert counts["searches"], "no strategy was drawn"
    for one, other in zip(truths, values, strict=True):
        scale = max(1.0, float(np.abs(one.numpy()).max()))
        error = max(error, float(np.abs(one.numpy() - other.numpy()).max()) / scale)
    return error


def guide() -> None:
    """The step that the guide shows."""
    text = (Path(__file__).parents[2] / "docs" / "custom-loops.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (program,) = [each for each in programs if "tensoropt.parallelize(train_step" in each]
    (evaluation,) = [each for each in programs if "error_of = " in each]
    exec(program + evaluation, {})


def scaled(x: Any) -> Any:
    """A function whose gradient reads random numbers, and the result of a conditional."""
    noise = tf.random.stateless_normal([4], [1, 2])
    factor = tf.cond(tf.reduce_sum(x) > 0.0, lambda: 0.5, lambda: 2.0)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def scale(x: Any) -> Any:
        return 0.5 * x, lambda upstream: upstream * factor + 0.01 * noise

    return scale(x)


def labels_in_time() -> float:
    """How far a loss that TensorFlow computes in a loop of its own is from TensorFlow alone."""
    random = np.random.default_rng(0)
    batch = random.random((8, 9, 5), np.float32), random.integers(1, 6, (8, 3))

    def losses(parallelize: Callable[..., Any]) -> list[float]:
        weights = tf.Variable(tf.reshape(tf.range(35.0) / 20, [5, 7]))

        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                logits = tf.transpose(x @ weights, [1, 0, 2])
                each = tf.nn.ctc_loss(y, logits, tf.fill([8], 3), tf.fill([8], 9), blank_index=0)
                value = tf.reduce_mean(each)
            weights.assign_sub(0.1 * tape.gradient(value, weights))
            return value

        run = parallelize(step)
        return [float(run(*batch)) for _ in range(3)]

    pairs = zip(losses(tf.function), losses(tensoropt.parallelize), strict=True)
    return max(abs(one / other - 1) for one, other in pairs)


def given_variables() -> float:
    """How far a step that is given its variables, and makes others in a branch, is from itself
    without TensorOpt."""
    batch = np.random.default_rng(0).random((8, 4), np.float32)

    def values(parallelize: Callable[..., Any]) -> list[float]:
        weights = [keras.Variable(np.full((4, 4), 0.5 + n, np.float32)) for n in range(2)]
        optimizer, count = optimizers.Adam(0.1), tf.Variable(0)

        @parallelize
        def step(x: Any, given: Any, count: Any) -> Any:
            with tf.GradientTape() as tape:
                value = tf.reduce_mean(tf.square(x @ given[0] @ given[1]))
            gradients = tape.gradient(value, given)
            count.assign_add(1)

            def apply() -> None:
                optimizer.apply_gradients(zip(gradients, weights, strict=True))

            tf.cond(count % 2 == 0, apply, lambda: None)
            return value

        given = [each.value for each in weights]
        return [float(step(batch, given, count=count)) for _ in range(5)] + [float(count)]

    pairs = zip(values(tf.function), values(tensoropt.parallelize), strict=True)
    return max(abs(one / other - 1) for one, other in pairs)


class OtherModel:
    """Not Keras 3's, but a model."""

    def compile(self) -> None:
        """As models have it."""

    def __call__(self, x: Any) -> Any:
        return x


class Counting(layers.Layer):  # type: ignore[misc]
    """A recurrent cell, one of whose states is a number for each example."""

    state_size, output_size = (4, ()), 4

    def get_initial_state(self, batch_size: Any = None) -> list[Any]:
        return [tf.zeros([batch_size, 4]), tf.zeros([batch_size])]

    def call(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        output, count = states
        output = tf.tanh(inputs + output * count[:, tf.newaxis])
        return output, [output, count + 1]


def loops_and_tables() -> float:
    """How far a step with loops over tensors, and tables, is from itself without TensorOpt."""
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1.0, 2.0])), 0.0
    )

    def step_and_weights() -> tuple[Any, Any]:
        weights = tf.Variable(tf.reshape(tf.range(16.0) / 20, [4, 4]))
        counting = layers.RNN(Counting())

        @tf.function
        def step(x: Any, words: Any) -> Any:
            with tf.GradientTape() as tape:
                for _ in tf.range(3):
                    x = tf.tanh(x @ weights)
                count = 0
                while tf.reduce_sum(x) > -1000.0 and count < 2:
                    x, count = x @ weights, count + 1
                x = scaled(tf.map_fn(lambda row: tf.linalg.matvec(weights, row) + row, x))
                sums = tf.TensorArray(tf.float32, 4, element_shape=[])
                for number in tf.range(4):
                    sums = sums.write(number, tf.reduce_sum(tf.sin(x[:, number])))
                running = tf.scan(lambda one, other: 0.5 * one + other, sums.stack())
                turned, turn = tf.complex(x, 0.5 * x), tf.complex(weights[0], weights[1])
                for _ in tf.range(2):
                    turned = turned * turn
                x += tf.math.real(turned) + counting(tf.stack([x, x @ weights], 1))
                value = tf.reduce_mean(x * table.lookup(words)[:, tf.newaxis])
                value += 0.01 * tf.reduce_sum(running * sums.gather([0, 2, 1, 3]))
            weights.assign_sub(0.1 * tape.gradient(value, weights))
            return value

        return step, weights

    random = np.random.default_rng(0)
    (plain, truth), (step, weights) = step_and_weights(), step_and_weights()
    parallel = tensoropt.parallelize(step)
    error = 0.0
    for _ in range(3):
        batch = random.random((8, 4), np.float32), np.array(list("abcaabbc"))
        error = max(error, abs(float(plain(*batch)) - float(parallel(*batch))))
    return max(error, float(np.abs(weights.numpy() - truth.numpy()).max()))


def created_in_the_step() -> float:
    """How far a step is from the same without TensorOpt that makes its layers, its optimizer's
    slots and averages of weights when it runs first, and takes arguments by name."""

    def train(run: Any) -> list[Any]:
        keras.utils.set_random_seed(5)
        model = keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(2)])
        optimizer, averages = optimizers.Nadam(0.02), list[Any]()

        def step(left: Any, *, right: Any, labels: Any, scale: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(left + right) * scale - labels))
            weights = model.trainable_variables
            if not averages:
                averages.extend(tf.Variable(2 * tf.convert_to_tensor(each)) for each in weights)
                averages.append(tf.Variable(lambda: tf.fill([2], tf.reduce_sum([1.0, 2.0]))))
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            for average, weight in zip(averages, weights, strict=False):
                average.assign(0.9 * average + 0.1 * weight)
            return loss

        random = np.random.default_rng(0)
        run, found = run(step), []
        for _ in range(2):
            left, right = random.random((2, 8, 4)).astype(np.float32)
            loss = run(left, right=right, labels=left[:, :2], scale=np.float32(0.5))
            found.append(float(loss))
        return [*found, *(each.numpy() for each in [*model.variables, *averages])]

    pairs = zip(train(tensoropt.parallelize), train(tf.function), strict=True)
    return max(float(np.abs(one - other).max()) for one, other in pairs)


class Late(tf.Module):  # type: ignore[misc]
    """Creates variables of many types in its first step."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.ones([4, 4]))
        self.late: list[Any] = []

    def step(self, x: Any) -> Any:
        if not self.late:
            two = tf.reduce_sum(tf.ones([2]))
            firsts = two > 0, tf.cast(two, tf.uint8), tf.strings.as_string(two), 5 * two
            self.late.extend([tf.Variable(each, trainable=False) for each in firsts])
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(tf.square(x @ self.weights)) * self.late[-1]
        self.weights.assign_sub(0.01 * tape.gradient(value, self.weights))
        return value


def restored(folder: Path) -> float:
    """Whether variables that a step creates keep what a checkpoint gives them: 0.0 if so."""
    batch = np.ones((8, 4), np.float32)
    before, after = Late(), Late()
    tensoropt.parallelize(before.step)(batch)
    assert [each.numpy() for each in before.late] == [True, 2, b"2.000000", 10.0]
    values = [False, 0, b"", 7.0]
    for variable, value in zip(before.late, values, strict=True):
        variable.assign(value)
    path = tf.train.Checkpoint(late=before).write(str(folder / "late"))
    tf.train.Checkpoint(late=after).restore(path)
    tensoropt.parallelize(after.step)(batch)
    return float([each.numpy() for each in after.late] != values)


def draws_go_on(folder: Path) -> float:
    """How far the steps after a checkpoint are from those of a job that begins with it."""
    path = str(folder / "draws")

    def losses(is_second: bool) -> list[float]:
        tensoropt.shutdown()
        tf.random.set_seed(1)
        weights = tf.Variable(tf.ones([4, 4]))

        def train(x: Any) -> Any:
            with tf.GradientTape() as tape:
                value = tf.reduce_mean(tf.nn.dropout(x @ weights, 0.5, seed=3))
            weights.assign_sub(0.1 * tape.gradient(value, weights))
            return value

        step = tensoropt.parallelize(train)
        if is_second:
            for _ in range(2):  # A job that saves before its first step leaves the counters.
                tf.train.Checkpoint(weights=weights).restore(path)
                tf.train.Checkpoint(weights=weights).write(path)
        found = []
        for number in range(2 if is_second else 4):
            if number == 2:
                tf.train.Checkpoint(weights=weights).write(path)
            found.append(float(step(np.ones((8, 4), np.float32))))
        return found

    whole = losses(is_second=False)
    assert len(set(whole)) == 4
    return max(abs(a - b) for a, b in zip(losses(is_second=True), whole[2:], strict=True))


def plan_from_a_file(folder: Path) -> float:
    """How far a step is from itself with its own plan, saved and loaded."""

    def losses(**options: Any) -> tuple[list[float], Any]:
        keras.utils.clear_session()  # layers have the same names, as in another process
        step, _, batch = step_of(convolutions)
        parallel = tensoropt.parallelize(step, **options)
        return [float(parallel(*batch)["loss"]) for _ in range(2)], parallel.plan

    truth, plan = losses(pipeline=False)
    plan.save(folder / "plan.json")
    found, same = losses(plan=folder / "plan.json")
    assert same.to_json() == plan.to_json()
    return max(abs(one - other) for one, other in zip(found, truth, strict=True))


def mistakes() -> dict[str, str]:
    """Return the error of each mistake, by a description of the mistake."""
    weights = tf.Variable(tf.ones([4, 4]))
    elements = iter(tf.data.Dataset.range(3))

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(tf.square(x @ weights))
        weights.assign_sub(0.1 * tape.gradient(value, weights))
        return value

    def through_a_loop(x: Any) -> Any:
        made = tf.TensorArray(tf.float32, 0, dynamic_size=True)
        with tf.GradientTape() as tape:
            for number in tf.range(3):
                made = made.write(number, x @ weights)
            value = tf.reduce_mean(made.stack())
        weights.assign_sub(0.1 * tape.gradient(value, weights))
        return value

    def that_changes(x: Any) -> Any:
        for _ in tf.range(3):
            weights.assign_add(x[:, :4])
        return x

    batch = np.ones((8, 4), np.float32)
    found = {}
    for name, call in {
        "model": lambda: tensoropt.parallelize(OtherModel()),
        "shapes": lambda: tensoropt.parallelize(train, shapes={}),
        "name": lambda: tensoropt.parallelize(train, save_memry=True),
        "value": lambda: tensoropt.parallelize(train, microbatches=0),
        "first": lambda: tensoropt.parallelize(lambda x: x + tf.Variable(2 * x))(batch),
        "plan": lambda: tensoropt.parallelize(train, plan="plan.json", epsilon=0.1),
        "profiling": lambda: tensoropt.parallelize(train, option="profiling"),
        "loop": lambda: tensoropt.parallelize(through_a_loop)(batch),
        "changes": lambda: tensoropt.parallelize(that_changes)(batch[:4]),
        "iterator": lambda: tensoropt.parallelize(lambda x: x + next(elements))(np.ones(3, int)),
        "creates": lambda: tensoropt.parallelize(lambda x: x + tf.Variable(1.0))(batch),
        "graph": lambda: tensoropt.placeholder(tensoropt.float32),
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
    strategies.preferred = lambda *_: None
    devices, folder, left_out = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    errors = {
        # Loops are split by examples alone, for which two devices do.
        name: worst(build, 2 if build is recurrent else devices, seed)
        for seed, (name, build) in enumerate(MODELS.items())
        if name not in left_out
    }
    frontier_search._searched = SEARCHED
    errors["loops and tables"] = loops_and_tables()
    errors["given variables"] = given_variables()
    if "labels in time" not in left_out:
        errors["labels in time"] = labels_in_time()
    errors["created in the step"] = created_in_the_step()
    errors["restored"] = restored(folder)
    errors["plan from a file"] = plan_from_a_file(folder)
    found = mistakes()
    errors["draws go on"] = draws_go_on(folder)
    print(json.dumps({"errors": errors, "mistakes": found}))
