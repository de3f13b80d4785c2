"""The training scripts that are compared: a perceptron, and the four models at small sizes.

Sizes divide by 8 where a model allows it. The bars should measure the parallel program, not
rounding that a model magnifies. Therefore batch normalisation has at least 16 values a channel.
Adaptive optimizers, which divide small gradients by their own size, appear in float64 only. The
seed of the data keeps all inputs of ReLUs farther from zero than float32 rounds, because the
gradient jumps at zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from examples.models import Model, lstm_language_model, transformer, vgg16, wide_resnet
from tests.oracles.equality.engine import Array, Script

__all__ = ["MODELS", "SCRIPTS", "UNEVEN", "many_lookups", "mlp", "model_script"]

BATCHES = {"vgg16": 8, "wide_resnet": 16, "lstm": 8, "transformer": 8}
UNEVEN_BATCHES = {"vgg16": 7, "wide_resnet": 19, "lstm": 9, "transformer": 11}
SEEDS = {"vgg16": 2, "wide_resnet": 19, "lstm": 0, "transformer": 8}
CLASSES = 8
VOCABULARY = 16
v1 = tf.compat.v1


def mlp(
    dtype: tf.DType = tf.float32,
    steps: int = 10,
    batch: int = 48,
    widths: Sequence[int] = (48, 96, 96, 48),
    dropout: float = 0.0,
) -> Script:
    """A multilayer perceptron with momentum; every extent divides by 2, 3, 4, 6, 8 and 16.

    ``dropout`` is the rate of dropout after every hidden layer.
    """
    random = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default():
        images = v1.placeholder(dtype, [None, widths[0]], name="images")
        labels = v1.placeholder(tf.int32, [None], name="labels")
        values = images
        for layer, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
            weights = v1.get_variable(
                f"weights{layer}",
                [inputs, outputs],
                dtype,
                initializer=v1.glorot_uniform_initializer(seed=layer),
            )
            bias = v1.get_variable(f"bias{layer}", [outputs], dtype, v1.zeros_initializer())
            values = tf.matmul(values, weights) + bias
            if layer < len(widths) - 2:
                values = tf.nn.relu(values)
                if dropout:
                    values = tf.nn.dropout(values, rate=dropout, seed=layer)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=values)
        loss = tf.reduce_mean(each)
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    feeds = tuple(
        {
            "images": random.normal(size=(batch, widths[0])).astype(dtype.as_numpy_dtype),
            "labels": random.integers(widths[-1], size=batch).astype(np.int32),
        }
        for _ in range(steps)
    )
    return Script(graph, train.name, loss.name, feeds)


def many_lookups() -> Script:
    """A table of fewer rows than lookups, which is looked up twice and also multiplied by."""
    graph = tf.Graph()
    with graph.as_default():
        numbers = v1.placeholder(tf.int32, [8, 2], name="numbers")
        others = v1.placeholder(tf.int32, [8, 2], name="others")
        table = v1.get_variable("table", [4, 4], tf.float64, v1.glorot_uniform_initializer(seed=1))
        weights = v1.get_variable(
            "weights", [4, 4], tf.float64, v1.glorot_uniform_initializer(seed=2)
        )
        rows = tf.nn.embedding_lookup(table, numbers) + tf.nn.embedding_lookup(table, others)
        values = tf.tanh(tf.matmul(tf.reshape(rows, [16, 4]), weights))
        loss = tf.reduce_mean(tf.square(tf.matmul(values, table, transpose_b=True)))
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    random = np.random.default_rng(0)
    feeds = tuple(
        {name: random.integers(4, size=(8, 2)).astype(np.int32) for name in ("numbers", "others")}
        for _ in range(3)
    )
    return Script(graph, train.name, loss.name, feeds)


def _vgg16(dtype: tf.DType) -> Model:
    return vgg16(16, 1 / 16, CLASSES, 16, dtype=dtype)


def _wide_resnet(dtype: tf.DType) -> Model:
    return wide_resnet(14, 2, 8, CLASSES, base_channels=2, small_images=True, dtype=dtype)


def _lstm(dtype: tf.DType) -> Model:
    return lstm_language_model(8, 2, 3, VOCABULARY, dtype=dtype)


def _transformer(dtype: tf.DType, dropout: float = 0.0) -> Model:
    return transformer(
        1, 16, 4, 32, 8, 8, VOCABULARY, dropout=dropout, label_smoothing=0.1, dtype=dtype
    )


MODELS: dict[str, Callable[..., Model]] = {
    "vgg16": _vgg16,
    "wide_resnet": _wide_resnet,
    "lstm": _lstm,
    "transformer": _transformer,
}
"""For each name a function of the dtype that builds the model in the default graph. The
Transformer's function also takes a rate of dropout."""


def model_script(
    name: str,
    dtype: tf.DType,
    steps: int = 5,
    seed: int | None = None,
    batch: int | None = None,
    **arguments: Any,
) -> Script:
    """One of the `MODELS` with its optimizer and random data.

    The optimizer is momentum, or Adam for the embedding models in float64. The LSTM's gradients are
    clipped by their global norm. Moving averages are updated before the variables. The seed of the
    data and the batch are the model's own unless they are given. Further arguments are passed to
    the model.
    """
    graph = tf.Graph()
    with graph.as_default():
        model = MODELS[name](dtype, **arguments)
        adaptive = dtype == tf.float64 and name in ("lstm", "transformer")
        make = v1.train.AdamOptimizer if adaptive else v1.train.MomentumOptimizer
        optimizer = make(0.01) if adaptive else make(0.02, 0.9)
        pairs = optimizer.compute_gradients(model.loss)
        if name == "lstm":
            clipped, _ = v1.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
            pairs = [(gradient, pair[1]) for gradient, pair in zip(clipped, pairs, strict=True)]
        with v1.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            train = optimizer.apply_gradients(pairs)
        random = np.random.default_rng(SEEDS[name] if seed is None else seed)
        feeds = tuple(_fed(model, batch or BATCHES[name], random) for _ in range(steps))
    return Script(graph, train.name, model.loss.name, feeds)


SCRIPTS: dict[str, Callable[[tf.DType], Script]] = {
    **{name: partial(model_script, name) for name in MODELS},
    "mlp": mlp,
    "mlp_dropout": partial(mlp, dropout=0.25),
    "transformer_dropout": partial(model_script, "transformer", dropout=0.1),
    **{f"uneven_{n}": partial(model_script, n, batch=b) for n, b in UNEVEN_BATCHES.items()},
    "uneven_mlp_dropout": partial(mlp, batch=37, widths=(48, 101, 67, 53), dropout=0.25),
}
"""For each name a function of the dtype: the `MODELS`, a perceptron, two models with dropout, and
models of odd batches."""

UNEVEN = tuple(name for name in SCRIPTS if name.startswith("uneven_"))
"""The scripts of which all extents of variables may be split into uneven pieces."""


def _fed(model: Model, batch: int, random: np.random.Generator) -> dict[str, Array]:
    """Random values for the placeholders: images, classes below 8 and tokens below 16."""
    fed: dict[str, Array] = {}
    for placeholder in model.placeholders.values():
        shape = [batch, *placeholder.shape.as_list()[1:]]
        value: Any = random.normal(size=shape)
        if placeholder.dtype.is_integer:
            value = random.integers(CLASSES if len(shape) == 1 else VOCABULARY, size=shape)
        fed[placeholder.op.name] = value.astype(placeholder.dtype.as_numpy_dtype)
    return fed


LARGE: dict[str, tuple[Callable[[], Model], int]] = {
    "vgg16": (lambda: vgg16(32, 1 / 2, 16, 256), 16),
    "wide_resnet": (lambda: wide_resnet(14, 2, 32, 16, base_channels=16, small_images=True), 16),
    "lstm": (lambda: lstm_language_model(512, 2, 6, 2048), 64),
    "transformer": (lambda: transformer(2, 256, 4, 1024, 32, 32, 2048), 16),
}
"""The same models with peaks of many megabytes, and their batches."""


def large_script(name: str, steps: int) -> Script:
    """One of the `LARGE` models with momentum and random data."""
    build, batch = LARGE[name]
    graph = tf.Graph()
    with graph.as_default():
        model = build()
        optimizer = v1.train.MomentumOptimizer(0.01, 0.9)
        with v1.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            train = optimizer.minimize(model.loss)
        random = np.random.default_rng(SEEDS[name])
        feeds = tuple(_fed(model, batch, random) for _ in range(steps))
    return Script(graph, train.name, model.loss.name, feeds)
