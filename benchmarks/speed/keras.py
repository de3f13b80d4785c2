"""``python -m benchmarks.speed.keras``: milliseconds of a training step of Keras's ``fit``.

Four dense layers of 2048, by SGD with momentum, on two ranks of one core each: ``fit`` of a model
that was passed to `tensoropt.parallelize`; the same network built as a graph, its step run again
and again; and ``fit`` of Keras's model whose gradients Horovod averages. Horovod's own optimizer
and callbacks for Keras know no Keras 3, so its tape is in a ``train_step``. The ways take turns of
some steps, the first two of a turn do not count; a step is as long as on the slowest rank, and the
median counts. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.launcher import mpirun

__all__: list[str] = []

_WIDTH, _CLASSES, _BATCH, _LAYERS = 2048, 16, 64, 4
_TURNS, _STEPS, _UNCOUNTED = 8, 8, 2


def main() -> None:
    """Start the ranks, and print what the first one says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.keras", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result is not None:
        _measure(options.result)
        return
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "times.json"
        program = [sys.executable, "-m", "benchmarks.speed.keras", "--result", str(result)]
        environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [mpirun(), "-np", str(options.ranks), *program]
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=environment
        )
        found = json.loads(result.read_text())
    for way, milliseconds in found["milliseconds"].items():
        print(f"{way} {milliseconds:.1f} ms a step")
    print(json.dumps(found))


def _measure(result: Path) -> None:
    """Measure all ways in turns; every rank calls."""
    import horovod.tensorflow as hvd
    import keras
    import tensorflow as tf

    import tensoropt
    from tensoropt.frontend.job.job import current

    tensoropt.init(allow_copies=True)
    group = current().group
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    random = np.random.default_rng(0)
    images = random.normal(size=(_BATCH * _STEPS, _WIDTH)).astype(np.float32)
    labels = random.integers(_CLASSES, size=_BATCH * _STEPS).astype(np.int32)
    layers = [keras.layers.Dense(_WIDTH, "relu") for _ in range(_LAYERS - 1)]

    class Averaged(keras.Sequential):  # type: ignore[misc]
        """Horovod averages its gradients."""

        def train_step(self, data: Any) -> Any:
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            weights = self.trainable_variables
            # Horovod's tape knows TensorFlow's variables, not Keras's.
            gradients = tape.gradient(loss, [each.value for each in weights])
            self.optimizer.apply(gradients, weights)
            return {"loss": loss}

    def compiled(kind: Any, parallel: bool) -> Any:
        own = [each.__class__.from_config(each.get_config()) for each in layers]
        model = kind([keras.Input((_WIDTH,)), *own, keras.layers.Dense(_CLASSES)])
        model = tensoropt.parallelize(model, pipeline=False) if parallel else model
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss)
        return model

    class Ends(keras.callbacks.Callback):  # type: ignore[misc]
        """When each batch has ended."""

        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del batch, logs
            self.times.append(time.perf_counter())

    def fitted(model: Any, part: slice, size: int) -> Callable[[], list[float]]:
        def turn() -> list[float]:
            ends = Ends()
            model.fit(images[part], labels[part], size, verbose=0, shuffle=False, callbacks=[ends])
            return list(np.diff(ends.times))

        return turn

    share = _BATCH // group.size
    own = slice(group.rank * share * _STEPS, (group.rank + 1) * share * _STEPS)
    averaged = fitted(compiled(Averaged, False), own, share)

    def horovod() -> list[float]:
        hvd.init()  # its thread, which looks for work, takes time of others
        try:
            return averaged()
        finally:
            hvd.shutdown()

    ours = compiled(keras.Sequential, True)
    whole = slice(None)
    ways = {
        "fit": fitted(ours, whole, _BATCH),
        "graph": _graph(images, labels),
        "horovod_fit": horovod,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(_TURNS + 1):
        order = list(ways)
        np.random.default_rng(turn).shuffle(order)
        for name in order:
            group.barrier()
            found = np.array(ways[name]()[_UNCOUNTED - 1 :])
            slowest = group.allreduce(found, "max")
            times[name] += list(slowest) if turn else []  # the first turn emits and traces
    medians = {name: float(np.median(found)) * 1e3 for name, found in times.items()}
    if group.rank == 0:
        ratios = {name: medians["fit"] / medians[name] for name in ways}
        said = {"ranks": group.size, "milliseconds": medians, "fit_over": ratios}
        result.write_text(json.dumps({**said, "plan": str(ours.train_function.plan)}))


def _graph(images: Any, labels: Any) -> Callable[[], list[float]]:
    """The same network as a graph, under a plan of its own."""
    import tensorflow as tf

    import tensoropt
    from tensoropt.execution.draws import Draws
    from tensoropt.frontend.job.job import current
    from tensoropt.frontend.job.plan_executor import plan_executor, ranks_of
    from tensoropt.frontend.tensorflow_api import recorded_gradients

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
    main()
