"""The models, and examples for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers

__all__ = ["WORKLOADS", "Workload"]

_IMAGE = (96, 96, 3)
_CLASSES, _IMAGE_CLASSES = 20, 100
_TABLES, _ROWS = 26, 20000
_WORDS = 5000

RANDOM = np.random.default_rng(0)


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A model and its data.

    Attributes:
        model: makes the Keras model.
        inputs: makes the inputs of a number of examples.
        targets: makes their targets.
        batch: number of examples of a batch.
        batches: number of batches of a long run, of several CPU seconds.
        loss: the name of a loss.
        metric: the name of a metric.
    """

    model: Callable[[], Any]
    inputs: Callable[[int], list[Any]]
    targets: Callable[[int], Any]
    batch: int
    batches: int
    loss: str = "sparse_categorical_crossentropy"
    metric: str = "sparse_categorical_accuracy"


def _resnet() -> Any:
    return keras.applications.ResNet50(weights=None, input_shape=_IMAGE, classes=_IMAGE_CLASSES)


def _tables() -> Any:
    """Embeddings of many features beside numbers, and three dense layers."""
    numbers = keras.Input((13,))
    features = [keras.Input((), dtype="int32") for _ in range(_TABLES)]
    values = layers.Concatenate()([numbers, *(layers.Embedding(_ROWS, 32)(x) for x in features)])
    for units in (512, 256):
        values = layers.Dense(units, "relu")(values)
    return keras.Model([numbers, *features], layers.Dense(1, "sigmoid")(values))


def _transformer() -> Any:
    """Two blocks of an encoder (Vaswani et al., "Attention is all you need", 2017)."""
    words = keras.Input((64,), dtype="int32")
    values = layers.Embedding(_WORDS, 128)(words)
    for _ in range(2):
        values = layers.LayerNormalization()(
            values + layers.MultiHeadAttention(4, 32)(values, values)
        )
        inner = layers.Dense(128)(layers.Dense(512, "gelu")(values))
        values = layers.LayerNormalization()(values + inner)
    pooled = layers.GlobalAveragePooling1D()(values)
    return keras.Model(words, layers.Dense(_CLASSES, "softmax")(pooled))


def _lstm() -> Any:
    """An LSTM (Hochreiter and Schmidhuber, 1997) over words."""
    words = keras.Input((40,), dtype="int32")
    values = layers.LSTM(256)(layers.Embedding(_WORDS, 128)(words))
    return keras.Model(words, layers.Dense(_CLASSES, "softmax")(values))


def _features(count: int) -> list[Any]:
    indices = RANDOM.integers(_ROWS, size=(_TABLES, count)).astype(np.int32)
    return [RANDOM.random((count, 13), np.float32), *indices]


def _words(length: int) -> Callable[[int], list[Any]]:
    return lambda count: [RANDOM.integers(_WORDS, size=(count, length)).astype(np.int32)]


def _classes(classes: int) -> Callable[[int], Any]:
    return lambda count: RANDOM.integers(classes, size=count)


WORKLOADS = {
    "resnet": Workload(
        _resnet,
        lambda count: [RANDOM.random((count, *_IMAGE), np.float32)],
        _classes(_IMAGE_CLASSES),
        batch=32,
        batches=8,
    ),
    "tables": Workload(
        _tables,
        _features,
        lambda count: RANDOM.integers(2, size=count).astype(np.float32),
        batch=2048,
        batches=120,
        loss="binary_crossentropy",
        metric="AUC",
    ),
    "transformer": Workload(_transformer, _words(64), _classes(_CLASSES), batch=64, batches=60),
    "lstm": Workload(_lstm, _words(40), _classes(_CLASSES), batch=64, batches=60),
}
"""For each name a model with its data."""
