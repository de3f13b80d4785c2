"""Gradients that scripts give by ``tf.custom_gradient``, on ranks of graphs with optimizers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.errors import GraphError
from tensoropt.parallel.choices.choices import strategy_choices
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import Script, random_prices, train_parallel, train_plain, worst_error

BATCHED = frozenset({"images"})
MESH = Mesh.of(2)

tensoropt.enable_graph_mode()
v1 = tf.compat.v1


@tf.custom_gradient  # type: ignore[untyped-decorator]
def rows(table: Any, numbers: Any) -> Any:
    """A gradient of rows, and none by whole numbers."""

    def gradient(upstream: Any) -> Any:
        return tf.IndexedSlices(2 * upstream, numbers, tf.shape(table)), None

    return tf.gather(table, numbers), gradient


@tf.custom_gradient  # type: ignore[untyped-decorator]
def some(values: Any) -> Any:
    """The mask is drawn at random, so a second call draws another one."""
    kept = tf.cast(tf.random.uniform(tf.shape(values)) < 0.5, values.dtype)
    return values * kept, lambda upstream: upstream * kept


def placed(scope: Callable[[Any], AbstractContextManager[Any]]) -> Callable[[Any], Any]:
    """A function whose operators, and those of its gradient, are made in a scope."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def function(values: Any) -> Any:
        with scope(values.op):
            twice = values * 2

        def gradient(upstream: Any) -> Any:
            with scope(twice.op):
                return upstream * tf.cos(twice)

        return tf.identity(twice), gradient

    return function


def _script(of_weights: Callable[[Any], Any]) -> Script:
    graph = tf.Graph()
    with graph.as_default():
        images = v1.placeholder(tf.float64, [None, 8], name="images")
        weights = v1.get_variable("weights", [8, 4], tf.float64, v1.ones_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(images, of_weights(weights * 0.5))))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    images_fed = np.random.default_rng(0).normal(size=(8, 8))
    return Script(graph, train.name, loss.name, ({"images": images_fed},) * 2)


def _trained_with_first_options(script: Script) -> Any:
    choices = strategy_choices(script.imported(), MESH, BATCHED)
    return train_parallel(script, MESH, (0,) * len(choices), random_prices(0), BATCHED)


def test_gradients_of_rows_are_added_where_they_belong() -> None:
    script = _script(lambda w: rows(w, tf.constant([7, 0, 0, 1, 2, 3, 4, 5])))
    assert worst_error(_trained_with_first_options(script), train_plain(script)) <= 1e-12


def test_what_cannot_be_computed_again_is_an_error() -> None:
    with pytest.raises(GraphError, match="RandomUniform; compute that before the function"):
        _trained_with_first_options(_script(some))


@pytest.mark.parametrize("scope", [v1.colocate_with, lambda _: tf.device("/gpu:3")])
def test_ranks_put_gradients_on_devices_of_their_own(
    scope: Callable[[Any], AbstractContextManager[Any]],
) -> None:
    results = _trained_with_first_options(_script(placed(scope)))
    plain = train_plain(_script(placed(lambda _: nullcontext())))
    assert worst_error(results, plain) <= 1e-12
