"""Input in shares: ``python shares_program.py FOLDER`` trains in plain Keras and TensorFlow if it
is alone, and in parallel on several ranks; the first rank prints the losses as JSON.

Each rank writes the examples for which it calls a map to a file of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.frontend.keras_models.own_batches import OwnBatches

FOLDER = Path(sys.argv[1])
EXAMPLES, BATCH = 72, 16  # the last batch has eight rows
random = np.random.default_rng(0)
x = random.normal(size=(EXAMPLES, 6)).astype(np.float32)
y = np.abs(x[:, :1] * 2).clip(0, 3).round()
is_alone = os.environ.get("COLLECTIVES_TRANSPORT") == "single"
rank = 0 if is_alone else tensoropt.rank()


def model() -> Any:
    keras.utils.set_random_seed(1)
    made = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)]
    )
    made.compile(keras.optimizers.SGD(0.05), "mse")
    return made if is_alone else tensoropt.parallelize(made)


def data(name: str = "") -> tf.data.Dataset:
    """Batches of `examples`."""
    return examples(name).batch(BATCH)


def examples(name: str) -> tf.data.Dataset:
    """Shuffled and mapped examples. The map notes the examples in a file of this name."""
    notes = f"file://{FOLDER}/{name}{rank}"

    def noted(features: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if name:
            tf.print(features[0], output_stream=notes)
        return 1.5 * features, target

    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(EXAMPLES, seed=5).map(noted)


class Rows(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches that Python makes, in an order that Keras shuffles."""

    calls = 0

    def __len__(self) -> int:
        return EXAMPLES // BATCH

    def __getitem__(self, row: int) -> Any:
        Rows.calls += 1
        return x[BATCH * row : BATCH * (row + 1)], y[BATCH * row : BATCH * (row + 1)]


def batches() -> Iterator[Any]:
    while True:
        for row in range(0, EXAMPLES, BATCH):
            yield x[row : row + BATCH], y[row : row + BATCH], np.ones(len(y[row : row + BATCH]))


def keras_losses() -> dict[str, Any]:
    """The losses of one model, by the kind of its input."""
    trained, losses = model(), dict[str, Any]()

    def fit(name: str, *given: Any, **options: Any) -> None:
        history = trained.fit(*given, **{"epochs": 2, "verbose": 0, **options}).history
        losses.update({f"{name} {key}": history[key] for key in sorted(history)})

    weights = np.linspace(0, 1, EXAMPLES)
    fit("arrays", x, y, BATCH, validation_split=0.2, sample_weight=weights)
    losses["evaluated"] = trained.evaluate(x, y, BATCH, 0)
    losses["predicted"] = trained.predict(x, BATCH, 0).tolist()
    by_class = {number: 1.0 + number for number in range(4)}
    fit("endless", data().repeat().prefetch(2), steps_per_epoch=3, class_weight=by_class)
    generator = batches()
    fit("generator", generator, epochs=1, steps_per_epoch=7, shuffle=False)
    trained.evaluate(generator, steps=2, verbose=0)  # It goes on, on the first rank alone.
    fit("data", data("fit"))
    fit("rows", Rows(workers=2))
    return losses


def losses_in_rounds() -> dict[str, Any]:
    """Metrics and predictions of a model before it is trained, whose weights are whole: each rank
    runs whole batches, and shares of the last one. The first rank prints the number of rounds."""
    fresh, rounds = model(), list[int]()
    run = OwnBatches.run

    def counted(*args: Any) -> Any:
        rounds.append(1)
        return run(*args)

    OwnBatches.run = counted  # type: ignore[method-assign]
    fresh.compile("sgd", "mse", metrics=["mae", keras.metrics.Precision(0.1)])
    found = {
        "evaluated in rounds": [fresh.evaluate(x, y > 1, BATCH, 0), fresh.evaluate(x, y, BATCH, 2)],
        "data in rounds": fresh.evaluate(data("rounds").map(lambda a, b: (a, b > 1)), verbose=0),
        "predicted in rounds": fresh.predict(x, BATCH, 0).tolist(),
    }
    OwnBatches.run = run  # type: ignore[method-assign]
    print(f"rank {rank} ran {len(rounds)} rounds", flush=True)
    return found


def loop_losses(name: str, **options: Any) -> list[float]:
    """The losses of a loop over a step with two layers, in two epochs."""
    numbers = tf.constant(["0", "1", "2", "3"]), tf.range(4, dtype=tf.float32)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(*numbers), -1.0)
    first = tf.Variable(np.linspace(-1, 1, 48).reshape(6, 8).astype(np.float32))
    second = tf.Variable(np.linspace(1, -1, 8).reshape(8, 1).astype(np.float32))

    def train(features: tf.Tensor, target: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
        factors = table.lookup(tf.strings.lower(words))[:, tf.newaxis]
        with tf.GradientTape() as tape:
            scores = tf.tanh(features @ first) @ second * factors
            loss = tf.reduce_mean(tf.square(scores - target))
        for weights, gradient in zip(
            (first, second), tape.gradient(loss, (first, second)), strict=True
        ):
            weights.assign_sub(0.01 * gradient)
        return loss

    def worded(features: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return features, target, tf.strings.as_string(tf.cast(target[0], tf.int32))

    step, read = train, examples(name).map(worded).batch(BATCH)
    if not is_alone:
        step = tensoropt.parallelize(train, **options)
        read = tensoropt.in_shares(read, step)
    return [float(step(*element)) for _ in range(2) for element in read]


if __name__ == "__main__":
    result = {**losses_in_rounds(), **keras_losses(), "loop": loop_losses("loop")}
    result["microbatches"] = loop_losses("microbatches", microbatches=2, pipeline=False)
    result["stages"] = loop_losses("", microbatches=2, pipeline=2)
    print(f"rank {rank} made {Rows.calls} batches of Python", flush=True)
    if rank == 0:
        print(json.dumps(result))
