"""The Keras models, each with a batch for its first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MODELS", "Start"]

Array = npt.NDArray[Any]

_CLASSES = 10


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """A model before its compilation, and a batch.

    Attributes:
        model: the Keras model.
        inputs: an array, or one array for each input.
        targets: class numbers, or numbers for a model with one output.
        loss: the name of a loss.
    """

    model: Any
    inputs: Array | tuple[Array, ...]
    targets: Array
    loss: str


def _resnet50() -> Start:
    """ResNet50 of ``keras.applications``, images of 96 pixels."""
    import keras

    model = keras.applications.ResNet50(
        weights=None, input_shape=(96, 96, 3), classes=_CLASSES, classifier_activation="softmax"
    )
    random = np.random.default_rng(0)
    images = random.normal(size=(16, 96, 96, 3)).astype(np.float32)
    return Start(model, images, _classes(random, 16), "sparse_categorical_crossentropy")


def _encoder() -> Start:
    """Twelve layers of a Transformer's encoder, width 256, 64 tokens."""
    import keras
    from keras import layers

    width, length, words = 256, 64, 2000
    tokens = keras.Input((length,), dtype="int32")
    values = layers.Embedding(words, width)(tokens)
    for _ in range(12):
        attended = layers.MultiHeadAttention(4, width // 4)(values, values)
        values = layers.LayerNormalization()(values + attended)
        hidden = layers.Dense(4 * width, "gelu")(values)
        values = layers.LayerNormalization()(values + layers.Dense(width)(hidden))
    pooled = layers.GlobalAveragePooling1D()(values)
    model = keras.Model(tokens, layers.Dense(_CLASSES, "softmax")(pooled))
    random = np.random.default_rng(0)
    given = random.integers(words, size=(16, length)).astype(np.int32)
    return Start(model, given, _classes(random, 16), "sparse_categorical_crossentropy")


def _tables() -> Start:
    """A recommendation model of 26 embedding tables."""
    import keras
    from keras import layers

    tables, rows, batch = 26, 20000, 64
    inputs = [keras.Input((1,), dtype="int32") for _ in range(tables)]
    looked_up = [layers.Flatten()(layers.Embedding(rows, 16)(each)) for each in inputs]
    hidden = layers.Dense(256, "relu")(layers.Concatenate()(looked_up))
    random = np.random.default_rng(0)
    given = tuple(random.integers(rows, size=(batch, 1)).astype(np.int32) for _ in range(tables))
    targets = random.normal(size=(batch, 1)).astype(np.float32)
    return Start(keras.Model(inputs, layers.Dense(1)(hidden)), given, targets, "mse")


def _quick_start() -> Start:
    """The model of the quick start in the documentation."""
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((32,)), layers.Dense(256, "relu"), layers.Dense(1)])
    features = np.random.default_rng(0).random((64, 32), np.float32)
    labels = features[:, :16].sum(axis=1) - features[:, 16:].sum(axis=1)
    return Start(model, features, labels, "mse")


def _perceptron() -> Start:
    """Two hidden layers of 128."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(128, "relu"),
            layers.Dense(128, "relu"),
            layers.Dense(_CLASSES, "softmax"),
        ]
    )
    random = np.random.default_rng(0)
    given = random.normal(size=(64, 64)).astype(np.float32)
    return Start(model, given, _classes(random, 64), "sparse_categorical_crossentropy")


def _classes(random: np.random.Generator, batch: int) -> Array:
    return random.integers(_CLASSES, size=batch).astype(np.int32)


MODELS: dict[str, Callable[[], Start]] = {
    "quick_start": _quick_start,
    "resnet50": _resnet50,
    "encoder": _encoder,
    "tables": _tables,
    "perceptron": _perceptron,
}
"""For each name a function that builds the model."""
