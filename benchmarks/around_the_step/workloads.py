"""The models, each with data whose preparation takes some milliseconds an example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from benchmarks.startup.models import MODELS

__all__ = ["BATCH", "WORKLOADS", "Workload"]

BATCH = 64
"""Number of examples of a step over all ranks."""

_CLASSES = 10
_STORED, _PIXELS = 288, 48  # width of the stored and of the trained images
_TABLES, _ROWS, _WORDS = 26, 20000, 26 * 200  # of the model of tables, and of an example's text
_TEXTS = 64  # different texts; examples repeat them


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A model before its compilation, and its data.

    Attributes:
        model: makes the Keras model.
        stored: makes arrays whose first dimension counts examples, for a number of examples.
        prepare: turns one stored example into inputs and target.
        loss: the name of a loss.
        metrics: names of metrics.
    """

    model: Callable[[], Any]
    stored: Callable[[int], tuple[Any, ...]]
    prepare: Callable[..., Any]
    loss: str
    metrics: Sequence[str]

    def batches(
        self, count: int, shards: int, shard: int, shuffled: bool = False
    ) -> tf.data.Dataset:
        """The batches of a number of examples.

        Args:
            count: number of examples.
            shards: number of shards; each has its part of the examples and of each batch.
            shard: number of the shard, if there are several.
            shuffled: whether each epoch has an order of its own.
        """
        examples = tf.data.Dataset.from_tensor_slices(self.stored(count))
        if shards > 1:
            examples = examples.shard(shards, shard)
        if shuffled:
            examples = examples.shuffle(count, seed=1)
        examples = examples.map(self.prepare, num_parallel_calls=tf.data.AUTOTUNE)
        return examples.batch(BATCH // shards).prefetch(2)


def _resnet() -> Any:
    """Six residual blocks (He et al., "Deep residual learning", 2016) of 16 to 64 channels."""
    image = keras.Input((_PIXELS, _PIXELS, 3))
    values = _normalised(layers.Conv2D(16, 3, 2, "same", use_bias=False)(image))
    for channels in (16, 32, 64):
        for block in range(2):
            stride = 2 if block == 0 and channels > 16 else 1
            inner = layers.Conv2D(channels, 3, stride, "same", use_bias=False)(values)
            inner = layers.Conv2D(channels, 3, 1, "same", use_bias=False)(_normalised(inner))
            if stride > 1:
                values = layers.Conv2D(channels, 1, stride, use_bias=False)(values)
            values = _normalised(layers.Add()([values, inner]))
    scores = layers.Dense(_CLASSES, "softmax")(layers.GlobalAveragePooling2D()(values))
    return keras.Model(image, scores)


def _normalised(values: Any) -> Any:
    return layers.ReLU()(layers.BatchNormalization()(values))


def _images(count: int) -> tuple[Any, ...]:
    """JPEG files and classes."""
    random = np.random.default_rng(0)
    shape = (_STORED // 8, _STORED // 8, 3)
    files = []
    for _ in range(count):
        coarse = random.integers(256, size=shape).astype(np.uint8)
        files.append(tf.io.encode_jpeg(np.kron(coarse, np.ones((8, 8, 1), np.uint8))).numpy())
    return np.array(files, object), random.integers(_CLASSES, size=count).astype(np.int32)


def _decoded(file: Any, label: Any) -> Any:
    """Decode an image, make it small, and spread its values from -1 to 1."""
    image = tf.image.resize(tf.io.decode_jpeg(file, channels=3), [_PIXELS, _PIXELS])
    return tf.ensure_shape(image, [_PIXELS, _PIXELS, 3]) / 127.5 - 1.0, label


def _texts(count: int) -> tuple[Any, ...]:
    """Texts and targets."""
    random = np.random.default_rng(0)
    words = random.integers(10**6, size=(_TEXTS, _WORDS))
    texts = np.array([" ".join(map(str, text)).encode() for text in words], object)
    targets = random.normal(size=(count, 1)).astype(np.float32)
    return texts[np.arange(count) % _TEXTS], targets


def _looked_up(text: Any, target: Any) -> Any:
    """Split a text into words, and find a row in each table: the largest hash of some words."""
    hashes = tf.strings.to_hash_bucket_fast(tf.strings.split(text), _ROWS)
    rows = tf.reduce_max(tf.reshape(tf.cast(hashes, tf.int32), [_TABLES, 1, -1]), -1)
    return tuple(tf.unstack(rows)), target


WORKLOADS = {
    "resnet": Workload(
        _resnet, _images, _decoded, "sparse_categorical_crossentropy", ("accuracy",)
    ),
    "tables": Workload(lambda: MODELS["tables"]().model, _texts, _looked_up, "mse", ("mae",)),
}
"""For each name a model with its data."""
