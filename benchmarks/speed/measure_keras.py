"""Times steps of Keras's ``fit`` in several ways; the first rank writes the times to a file.

    mpirun -np 2 python -m benchmarks.speed.measure_keras RESULT.json

The ways are ``fit`` of a model that was passed to `tensoropt.parallelize`; the same network as a
graph, whose step runs repeatedly; and ``fit`` of Keras's model with gradients averaged by Horovod.
Horovod's optimizer and callbacks do not support Keras 3, so its tape is in a ``train_step``. The
ways take turns of some steps, and the first two steps of a turn do not count. The slowest rank
determines the time of a step, and the median of steps counts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

import tensoropt
from collectives.group import Group
from tensoropt.execution.lowering.draws import Draws
from tensoropt.frontend.job.job import current
from tensoropt.frontend.job.plan_executor import plan_executor, ranks_of
from tensoropt.frontend.tensorflow_api import recorded_gradients

__all__: list[str] = []

_WIDTH, _CLASSES, _BATCH, _LAYERS = 2048, 16, 64, 4
_TURNS, _STEPS, _UNCOUNTED = 8, 8, 2

Turn = Callable[[], list[float]]
"""Runs the steps of a turn and returns the seconds of each step but the first."""


def main(result: Path) -> None:
    """Measure all ways in turns; every rank calls."""
    tensoropt.init(allow_copies=True)
    group = current().group
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    random = np.random.default_rng(0)
    images = random.normal(size=(_BATCH * _STEPS, _WIDTH)).astype(np.float32)
    labels = random.integers(_CLASSES, size=_BATCH * _STEPS).astype(np.int32)
    share = _BATCH // group.size
    own = slice(group.rank * share * _STEPS, (group.rank + 1) * share * _STEPS)
    ours = _compiled(tensoropt.parallelize(_model(keras.Sequential), pipeline=False))
    ways = {
        "fit": _fitted(ours, images, labels, _BATCH),
        "graph": _graph(images, labels),
        "horovod_fit": _with_horovod(
            _fitted(_compiled(_model(Averaged)), images[own], labels[own], share)
        ),
    }
    medians = _medians(group, ways)
    if group.rank == 0:
        ratios = {name: medians["fit"] / medians[name] for name in ways}
        said = {"ranks": group.size, "milliseconds": medians, "fit_over": ratios}
        result.write_text(json.dumps({**said, "plan": str(ours.train_function.plan)}))


def _medians(group: Group, ways: Mapping[str, Turn]) -> dict[str, float]:
    """Milliseconds of a step for each way."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(_TURNS + 1):
        order = list(ways)
        np.random.default_rng(turn).shuffle(order)
        for name in order:
            group.barrier()
            found = np.array(ways[name]()[_UNCOUNTED - 1 :])
            slowest = group.allreduce(found, "max")
            times[name] += list(slowest) if turn else []  # the first turn emits and traces
    return {name: float(np.median(found)) * 1e3 for name, found in times.items()}


class Averaged(keras.Sequential):  # type: ignore[misc]
    """A model whose gradients Horovod averages."""

    def train_step(self, data: Any) -> Any:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        weights = self.trainable_variables
        # Horovod's tape knows TensorFlow's variables, not Keras's.
        gradients = tape.gradient(loss, [each.value for each in weights])
        self.optimizer.apply(gradients, weights)
        return {"loss": loss}


def _model(kind: Any) -> Any:
    layers = [keras.layers.Dense(_WIDTH, "relu") for _ in range(_LAYERS - 1)]
    return kind([keras.Input((_WIDTH,)), *layers, keras.layers.Dense(_CLASSES)])


def _compiled(model: Any) -> Any:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss)
    return model


class _Ends(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes the time at which each batch ends."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self.times.append(time.perf_counter())


def _fitted(model: Any, images: Any, labels: Any, size: int) -> Turn:
    def turn() -> list[float]:
        ends = _Ends()
        model.fit(images, labels, size, verbose=0, shuffle=False, callbacks=[ends])
        return list(np.diff(ends.times))

    return turn


def _with_horovod(turn: Turn) -> Turn:
    """A turn during which Horovod runs; its thread would take time from other turns."""

    def call() -> list[float]:
        hvd.init()
        try:
            return turn()
        finally:
            hvd.shutdown()

    return call


def _graph(images: Any, labels: Any) -> Turn:
    """The same network as a graph, under its own plan."""
    v1, graph = tf.compat.v1, tf.Graph()
    recorded_gradients.install()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [_BATCH, _WIDTH], name="x")
        y = v1.placeholder(tf.int32, [_BATCH], name="y")
        values = x
        for number, units in enumerate([*[_WIDTH] * (_LAYERS - 1), _CLASSES]):
            shape = [values.shape[1], units]
            scale = np.sqrt(2 / _WIDTH)
            start = v1.random_normal_initializer(stddev=scale, seed=number)
            weight = v1.get_variable(f"w{number}", shape, initializer=start, use_resource=True)
            bias = v1.get_variable(
                f"b{number}", [units], initializer=v1.zeros_initializer(), use_resource=True
            )
            values = tf.matmul(values, weight) + bias
            values = tf.nn.relu(values) if number < _LAYERS - 1 else values
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=values)
        loss = tf.reduce_mean(entropy)
        train = v1.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
        plan = tensoropt.find_strategy(fetches=[train, loss], pipeline=False)
        job = current()
        world, _, agreement = ranks_of(job, plan)
        assert world is not None, "the plan takes all ranks"
        executor = plan_executor(job, graph, plan, world, agreement)
    draws = Draws()

    def turn() -> list[float]:
        ends = []
        for step in range(_STEPS):
            part = slice(step * _BATCH, (step + 1) * _BATCH)
            feeds = {"x": images[part], "y": labels[part]}
            executor.run([loss.name], [train.name], feeds, draws)
            ends.append(time.perf_counter())
        return list(np.diff(ends))

    return turn


if __name__ == "__main__":
    main(Path(sys.argv[1]))
