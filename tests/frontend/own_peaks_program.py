"""``own_peaks_program.py`` runs whole batches of models on each rank; the first rank prints, for
each model, the predicted and the usual measured peak of memory as JSON."""

from __future__ import annotations

import json
import statistics
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tensoropt
from tensoropt.execution.runtime.program import Program
from tensoropt.frontend.keras_models import own_batches

BATCH, ROUNDS = 128, 7

predicted: list[int] = []
measured: list[int] = []


def convolutions() -> Any:
    image = keras.Input((32, 32, 8))
    values = image
    for filters in (32, 64, 32):
        values = layers.Conv2D(filters, 3, activation="relu", padding="same")(values)
        values = layers.BatchNormalization()(values)
    return keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling2D()(values)))


def tables() -> Any:
    words = keras.Input((256,), dtype="int32")
    values = layers.Embedding(4000, 64)(words)
    return keras.Model(words, layers.Dense(10)(layers.Dense(64, "relu")(values)))


def attention() -> Any:
    given = keras.Input((64, 128))
    values = given + layers.MultiHeadAttention(4, 32)(given, given)
    values = layers.Dense(128)(layers.Dense(512, "relu")(layers.LayerNormalization()(values)))
    return keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling1D()(values)))


def recurrent() -> Any:
    given = keras.Input((48, 32))
    values = layers.GRU(48)(layers.LSTM(64, return_sequences=True)(given))
    return keras.Model(given, layers.Dense(10)(values))


def watch() -> None:
    """Note the predicted peaks, and the measured ones: variables, and what a run adds."""
    predict, run = own_batches.own_batch_bytes, Program.run

    def prediction(*args: Any) -> int:
        predicted.append(predict(*args))
        return predicted[-1]

    def peak(program: Program, feeds: Any, *args: Any) -> Any:
        before = tf.config.experimental.get_memory_info("CPU:0")["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
        result = run(program, feeds, *args)
        if program.is_own:
            most = tf.config.experimental.get_memory_info("CPU:0")["peak"]
            specs = [each.value_spec(0) for each in program.graph if each.is_variable]
            measured.append(most - before + sum(spec.bytes for spec in specs))
        return result

    own_batches.own_batch_bytes = prediction  # type: ignore[assignment]
    Program.run = peak  # type: ignore[method-assign, assignment]


def main() -> None:
    watch()
    found = {}
    for make in (convolutions, tables, attention, recurrent):
        keras.utils.set_random_seed(1)
        model = tensoropt.parallelize(make())
        shape = (2 * ROUNDS * BATCH, *model.input_shape[1:])
        predicted.clear()
        measured.clear()
        model.predict(np.ones(shape, model.inputs[0].dtype), BATCH, 0)
        found[make.__name__] = [*predicted, statistics.median(measured)]
    if tensoropt.rank() == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
