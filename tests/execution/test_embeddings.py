"""Embedding tables split by rows, columns and looked-up batches, against one device."""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices.choices import configurations_of
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of
from tests.oracles.equality import (
    Script,
    choices_of,
    draw,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)

v1 = tf.compat.v1
train = v1.train

BATCHED = frozenset({"words", "labels"})
BATCH, LENGTH, WORDS, WIDTH, CLASSES = 12, 2, 24, 12, 12

tensoropt.enable_graph_mode()


@dataclass(frozen=True)
class Layer:
    """What a loss is made of: the data and the table.

    ``words`` are numbers of rows, of which most are in no step and some occur several times.
    """

    table: Any
    words: Any
    labels: Any
    variable: Callable[[str, list[int]], Any]


def classified(layer: Layer, values: Any) -> Any:
    weights = layer.variable("weights", [WIDTH, CLASSES])
    return entropy(layer, tf.matmul(values, weights))


def entropy(layer: Layer, scores: Any) -> Any:
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=layer.labels, logits=scores)
    return tf.reduce_mean(each)


def bag_of_words(layer: Layer) -> Any:
    return classified(
        layer, tf.reduce_sum(tf.nn.embedding_lookup(layer.table, layer.words), axis=1)
    )


def two_lookups(layer: Layer) -> Any:
    first = tf.nn.embedding_lookup(layer.table, layer.words[:, 0])
    second = tf.nn.embedding_lookup(layer.table, layer.words[:, 1])
    return classified(layer, first * tf.tanh(second) + first)


def tied_weights(layer: Layer) -> Any:
    """The table is the output layer, too: its gradient is dense."""
    bag = tf.reduce_sum(tf.nn.embedding_lookup(layer.table, layer.words), axis=1)
    return entropy(layer, tf.matmul(bag, layer.table, transpose_b=True))


def cast_table(layer: Layer) -> Any:
    """A table of another precision: its gradient stays sparse through the cast."""
    halves = tf.cast(tf.cast(layer.table, tf.float64), layer.table.dtype)
    return classified(layer, tf.reduce_sum(tf.nn.embedding_lookup(halves, layer.words), axis=1))


def rows_of_an_activation(layer: Layer) -> Any:
    """What rows are looked up of is computed: its gradient goes on as a dense one."""
    hidden = tf.tanh(tf.matmul(layer.table, layer.variable("inner", [WIDTH, WIDTH])))
    return classified(layer, tf.reduce_sum(tf.gather(hidden, layer.words), axis=1))


def columns_looked_up(layer: Layer) -> Any:
    """Gathers along other dimensions, one per row of the batch."""
    table = tf.reshape(layer.table, [BATCH, 2, WIDTH])
    picked = tf.gather(table, layer.words % 2, axis=1, batch_dims=1)
    turned = tf.gather(tf.transpose(layer.table), layer.words % WORDS, axis=1)
    return classified(layer, tf.reduce_sum(picked, 1) + tf.transpose(tf.reduce_sum(turned, 2)))


LOSSES: dict[str, Callable[[Layer], Any]] = {
    "bag of words": bag_of_words,
    "two lookups": two_lookups,
    "tied weights": tied_weights,
    "cast table": cast_table,
    "rows of an activation": rows_of_an_activation,
    "columns looked up": columns_looked_up,
}

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "gradient descent": lambda: train.GradientDescentOptimizer(0.5),
    "momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adam": lambda: train.AdamOptimizer(0.01),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "rmsprop": lambda: train.RMSPropOptimizer(0.01, momentum=0.9),
    "centred rmsprop": lambda: train.RMSPropOptimizer(0.01, centered=True),
    "ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
}


def script(
    optimizer: str = "gradient descent",
    loss: str = "bag of words",
    resource: bool = True,
    dtype: tf.DType = tf.float64,
    clipped: bool = False,
) -> Script:
    random = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        words = v1.placeholder(tf.int32, [None, LENGTH], name="words")
        labels = v1.placeholder(tf.int32, [None], name="labels")
        initializer = v1.random_normal_initializer(stddev=0.5, seed=1)

        def variable(name: str, shape: list[int]) -> Any:
            return v1.get_variable(name, shape, dtype, initializer)

        layer = Layer(variable("table", [WORDS, WIDTH]), words, labels, variable)
        cost = LOSSES[loss](layer)
        made = OPTIMIZERS[optimizer]()
        pairs = made.compute_gradients(cost)
        if clipped:
            gradients, _ = v1.clip_by_global_norm([gradient for gradient, _ in pairs], 0.1)
            pairs = [(g, pair[1]) for g, pair in zip(gradients, pairs, strict=True)]
        operation = made.apply_gradients(pairs)
    feeds = tuple(
        {
            "words": random.integers(8, size=(BATCH, LENGTH)).astype(np.int32) + 8 * step,
            "labels": random.integers(CLASSES, size=BATCH).astype(np.int32),
        }
        for step in range(3)
    )
    return Script(graph, operation.name, cost.name, feeds)


@dataclass(frozen=True)
class Case:
    """One script under strategies on some numbers of devices."""

    script: Script
    devices: tuple[int, ...]
    strategies: int
    bar: float = 1e-12

    def drawn(self) -> Iterator[tuple[Mesh, tuple[int, ...], dict[str, Configuration]]]:
        graph = self.script.imported()
        random = np.random.default_rng(zlib.crc32(self.script.train.encode()))
        for devices in self.devices:
            mesh = Mesh.of(devices)
            choices = choices_of(self.script, mesh, BATCHED)
            for _ in range(self.strategies):
                numbers = draw(graph, choices, mesh, random).numbers
                yield mesh, numbers, configurations_of(choices, numbers)


def split_of(graph: Graph, chosen: dict[str, Configuration]) -> set[str]:
    """Which dimensions of lookups and of sparse updates a strategy splits."""
    found = set()
    for name, configuration in chosen.items():
        kind = graph[name].type
        if kind in ("Gather", "GatherV2") or "Sparse" in kind or "Scatter" in kind:
            derivation = derivation_of(graph[name])
            for index, axes in zip(derivation.indices, configuration.splits, strict=True):
                if axes:
                    found.add(f"{'lookup' if 'Gather' in kind else 'update'} {index.name}")
    return found


CASES: dict[str, Callable[[], Case]] = {
    **{
        f"{name}, {'resource' if resource else 'reference'}": (
            lambda name=name, resource=resource: Case(
                script(name, resource=resource), (4,) if resource else (2,), 1
            )
        )
        for name in OPTIMIZERS
        for resource in (False, True)
    },
    **{
        loss: lambda loss=loss: Case(script("adagrad", loss), (2, 6), 1)
        for loss in LOSSES
        if loss != "bag of words"
    },
    "tied weights, reference": lambda: Case(script("adam", "tied weights", False), (4,), 1),
    "clipped": lambda: Case(script("momentum", "two lookups", clipped=True), (2, 4), 1),
    "float32": lambda: Case(script("momentum", dtype=tf.float32), (2, 6), 1, 1e-5),
}


@functools.cache
def case(name: str) -> Case:
    return CASES[name]()


@pytest.mark.parametrize("name", CASES)
def test_training_equals_one_device(name: str) -> None:
    own = case(name)
    truth = train_plain(own.script)
    for place, (mesh, numbers, _) in enumerate(own.drawn()):
        found = train_parallel(own.script, mesh, numbers, random_prices(place), BATCHED)
        assert worst_error(found, truth) <= own.bar, (mesh.size, numbers)


def test_rows_columns_and_batches_are_split() -> None:
    counts: Counter[str] = Counter()
    for name in CASES:
        own = case(name)
        for _, _, chosen in own.drawn():
            counts.update(split_of(own.script.imported(), chosen))
    for kind in ("lookup row", "lookup i0", "lookup i2", "update row", "update rest0"):
        assert counts[kind] >= 4, counts
