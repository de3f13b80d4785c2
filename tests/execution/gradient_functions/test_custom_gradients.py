"""Emitted graphs leave no gradient functions behind."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from tensoropt.parallel.choices.choices import configurations_of
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import choices_of, executor_of, mlp, random_prices

BATCHED = frozenset({"images", "labels"})


def test_an_emitted_graph_is_freed_with_its_executor() -> None:
    script, mesh = mlp(tf.float32), Mesh.of(2)
    choices = choices_of(script, mesh, BATCHED)
    last = configurations_of(choices, [len(group.options) - 1 for group in choices])
    registered = set(ops.gradient_registry._registry)
    executor = executor_of(script.graph, mesh, last, random_prices(0), BATCHED)
    loss = executor.run([script.loss], [script.train], script.feeds[0])[script.loss]
    assert np.isfinite(loss)
    assert set(ops.gradient_registry._registry) == registered
    emitted = weakref.ref(executor._session.opened.graph)
    executor.close()
    del executor
    gc.collect()
    assert emitted() is None
