"""Small compiled Keras models, each with a batch.

They have several optimizers, layers that prepare data, and variables that are loaded or made late.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

__all__ = ["COMPILED"]

Batch = tuple[Any, Any]
layers, optimizers = keras.layers, keras.optimizers


def trained_by(optimizer: Callable[[], Any]) -> Callable[[], tuple[Any, Batch]]:
    """A model of dense layers, compiled with an optimizer."""

    def build() -> tuple[Any, Batch]:
        model = keras.Sequential(
            [keras.Input((12,)), layers.Dense(16, "tanh"), layers.LayerNormalization()]
        )
        model.add(layers.Dense(4))
        model.compile(optimizer(), "mse")
        return model, _rows(12, 4)

    return build


def texts() -> tuple[Any, Batch]:
    """A model of texts and words looked up in tables, bytes, truth values and images, of ranks 1 to
    4."""
    random = np.random.default_rng(0)
    data = {
        "text": np.array([" ".join("abcdefg"[row % 3 : 3 + row % 5]) for row in range(16)]),
        "kind": random.choice(list("abc"), (16, 1)),
        "number": random.integers(0, 4, 16).astype(np.int8),
        "is_new": random.random(16) < 0.5,
        "image": random.integers(0, 255, (16, 4, 4, 1)).astype(np.uint8),
    }
    given = {name: keras.Input(x.shape[1:], dtype=_type(x)) for name, x in data.items()}
    words = layers.TextVectorization(vocabulary=list("abcdef"))(given["text"])
    lookup = layers.StringLookup(vocabulary=list("abc"), output_mode="one_hot")
    column = layers.Reshape((1,))
    parts = [
        layers.GlobalAveragePooling1D()(layers.Embedding(8, 8, mask_zero=True)(words)),
        lookup(given["kind"]),
        layers.CategoryEncoding(4, "one_hot")(column(given["number"])),
        keras.ops.cast(column(given["is_new"]), "float32"),
        layers.Flatten()(layers.Rescaling(1 / 255)(given["image"])),
    ]
    model = keras.Model(given, layers.Dense(4)(layers.Concatenate()(parts)))
    model.compile(optimizers.Adam(0.01), "mse")
    return model, (data, _rows(12, 4)[1])


def preprocessing() -> tuple[Any, Batch]:
    """A model with layers that were adapted to data, or that hash their inputs."""
    x, y = _rows(12, 4)
    whole, kinds = (10 * x).astype(np.int64), np.array([["a"], ["b"]] * 8)
    prepared = [layers.Normalization(), layers.Discretization(num_bins=4)]
    for layer in prepared:
        layer.adapt(x)
    known = layers.IntegerLookup(output_mode="multi_hot")
    known.adapt(whole)
    data = {"x": x, "whole": whole, "kinds": kinds}
    given = {name: keras.Input(x.shape[1:], dtype=_type(x)) for name, x in data.items()}
    parts = [
        prepared[0](given["x"]),
        layers.Flatten()(layers.Embedding(5, 4)(prepared[1](given["x"]))),
        known(given["whole"]),
        layers.Hashing(5, output_mode="one_hot")(given["kinds"]),
    ]
    model = keras.Model(given, layers.Dense(4)(layers.Concatenate()(parts)))
    model.compile(optimizers.Adam(0.01), "mse")
    return model, (data, y)


def loaded() -> tuple[Any, Batch]:
    """A model that was trained for a step, saved and loaded together with its optimizer."""
    model, batch = trained_by(lambda: optimizers.Nadam(0.01))()
    model.train_on_batch(*batch)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        return keras.saving.load_model(f"{folder}/model.keras"), batch


class Late(keras.Model):  # type: ignore[misc]
    """A model that makes its layers when it is first called."""

    def build(self, _: Any) -> None:
        self.inner, self.norm = layers.Dense(16, "tanh"), layers.BatchNormalization()
        self.drop, self.outer, self.built = layers.Dropout(0.2), layers.Dense(4), True

    def call(self, x: Any, training: bool = False) -> Any:
        return self.outer(self.drop(self.norm(self.inner(x), training=training), training=training))


def late() -> tuple[Any, Batch]:
    """A model without variables before its first batch."""
    model = Late()
    model.compile(optimizers.Adafactor(0.01), "mse", metrics=["mae"])
    return model, _rows(12, 4)


def _rows(features: int, targets: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(16, features)), random.normal(size=(16, targets))
    return x.astype("float32"), y.astype("float32")


def _type(values: Any) -> str:
    return "string" if values.dtype.kind == "U" else str(values.dtype)


COMPILED: dict[str, Callable[[], tuple[Any, Batch]]] = {
    "nadam": trained_by(lambda: optimizers.Nadam(0.01)),
    "adafactor": trained_by(lambda: optimizers.Adafactor(0.01)),
    "ftrl": trained_by(lambda: optimizers.Ftrl(0.01)),
    "lamb": trained_by(lambda: optimizers.Lamb(0.01, global_clipnorm=1.0)),
    "averaged": trained_by(lambda: optimizers.SGD(0.01, use_ema=True, ema_overwrite_frequency=2)),
    "accumulated": trained_by(lambda: optimizers.AdamW(0.01, gradient_accumulation_steps=2)),
    "texts": texts,
    "preprocessing": preprocessing,
    "loaded": loaded,
    "late": late,
}
"""The compiled models by name; each function returns a model and a batch."""
