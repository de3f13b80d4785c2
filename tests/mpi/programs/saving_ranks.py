"""What TensorFlow 2 saves with, around a parallel step.

``python saving_ranks.py FOLDER`` alone is plain TensorFlow; on several ranks the step is parallel.
It prints a line of JSON that is the same in both but for the folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import tensoropt

IS_PARALLEL = "PMI_RANK" in os.environ
X = np.random.default_rng(0).random((8, 4), np.float32)


class Training:
    """A model, its optimizer and its step, with variables that are made late."""

    def __init__(self, legacy: bool) -> None:
        package: Any = tf_keras if legacy else keras
        layers, optimizers = package.layers, package.optimizers
        self.model = package.Sequential([layers.Dense(3, "tanh"), layers.Dense(1)])
        self.optimizer = optimizers.legacy.Adam(0.1) if legacy else optimizers.Adam(0.1)
        self.count = tf.Variable(0, dtype=tf.int64)
        self.checkpoint = tf.train.Checkpoint(
            model=self.model, optimizer=self.optimizer, count=self.count
        )
        self.step = tf.function(self._step)
        if IS_PARALLEL:
            self.step = tensoropt.parallelize(self._step, pipeline=False)

    def build(self) -> None:
        """The same values on all ranks; a restored checkpoint has given them before."""
        self.model.build((None, 4))
        for each in self.model.trainable_variables:
            each.assign(np.linspace(-1, 1, int(np.prod(each.shape))).reshape(each.shape))

    def _step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(x) - 1.0))
        weights = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.count.assign_add(1)
        return loss


def error_of(call: Callable[[], Any]) -> str:
    """The kind of the error that a call raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def exported(training: Training, folder: Path) -> float:
    """What a SavedModel with a variable of a parallel step computes."""
    module = tf.Module()
    weights = training.model.variables[0]
    module.weights = weights if isinstance(weights, tf.Variable) else weights.value
    signature = [tf.TensorSpec([None, 4])]
    module.project = tf.function(lambda x: x @ module.weights, input_signature=signature)
    tf.saved_model.save(module, str(folder / "exported"))
    loaded = tf.saved_model.load(str(folder / "exported"))
    return float(tf.reduce_sum(loaded.project(X)))


def trained(folder: Path, legacy: bool) -> dict[str, Any]:
    """Losses, and how a manager has numbered and kept checkpoints."""
    training = Training(legacy)
    training.build()
    manager = tf.train.CheckpointManager(
        training.checkpoint,
        folder / "managed",
        max_to_keep=2,
        keep_checkpoint_every_n_hours=1,
        step_counter=training.count,
        checkpoint_interval=2,
    )
    assert manager.restore_or_initialize() is None
    writer = tf.summary.create_file_writer(str(folder / "summaries"))
    losses, saved = [], []
    beside = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    options = beside if IS_PARALLEL and legacy else None  # files are written beside the steps
    for number in range(5):
        losses.append(float(training.step(X)))
        with writer.as_default(step=number):
            tf.summary.scalar("loss", losses[-1])
            tf.summary.histogram("kernel", tf.convert_to_tensor(training.model.variables[0]))
        saved.append(manager.save(options=options))
    saved.append(manager.save(check_interval=False, options=options))
    if options:  # each rank waits when it reads
        latest = [path for path in saved if path][-1]
        assert tf.train.latest_checkpoint(folder / "managed") == latest
    writer.close()
    saved.append(training.checkpoint.save(folder / "saved", options=options))
    saved.append(training.checkpoint.write(folder / "written", options=options))

    def unwritable() -> None:
        training.checkpoint.save("/dev/null/no/folder", options=options)
        training.step(X)  # raises the error of a save beside the steps
        training.step(X)

    missing = [
        error_of(unwritable).partition(":")[0],
        error_of(lambda: training.checkpoint.read(str(folder / "missing"))).partition(":")[0],
    ]
    numbers = int(training.checkpoint.save_counter)
    losses.append(float(training.step(X)))
    return {
        "losses": losses,
        "saved": [each and Path(each).name for each in saved],
        "kept": [Path(each).name for each in (*manager.checkpoints, manager.latest_checkpoint)],
        "missing": missing,
        "number": numbers,
        "exported": exported(training, folder),
        "count": int(training.count),
    }


def resumed(folder: Path, legacy: bool) -> dict[str, Any]:
    """Losses of a training that goes on from a checkpoint, restored before variables exist."""
    training = Training(legacy)
    latest = tf.train.latest_checkpoint(folder / "managed")
    status = training.checkpoint.restore(latest)
    losses = [float(training.step(X)) for _ in range(2)]
    status.assert_consumed()
    return {"losses": losses, "count": int(training.count)}


def refused() -> dict[str, str]:
    """Errors of several ranks alone."""
    writer = tf.summary.create_file_writer(tf.io.gfile.join(sys.argv[1], "refused"))

    def summarises(x: Any) -> Any:
        with writer.as_default(step=0):
            tf.summary.scalar("mean", tf.reduce_mean(x))
        return x

    return {
        "summary": error_of(lambda: tensoropt.parallelize(summarises)(X)),
    }


def interrupted(folder: Path) -> bool:
    """Whether a job that goes on sees the rows, and has the losses, of one that was not ended."""
    beside = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)

    def job() -> tuple[Any, Any]:
        tf.random.set_seed(1)
        numbers = tf.data.Dataset.range(12).shuffle(12, seed=3).batch(4).repeat(2)
        training, rows = Training(legacy=False), iter(numbers)
        training.build()

        def step(x: Any) -> Any:
            return training._step(tf.nn.dropout(x, 0.5, seed=5))

        parallel = tensoropt.parallelize(step, pipeline=False)

        def run() -> list[float]:
            row = next(rows).numpy()
            return [float(parallel(X[row % 8])), *row.tolist()]

        return tf.train.Checkpoint(training=training.checkpoint, rows=rows), run

    checkpoint, run = job()
    for _ in range(2):
        run()
    path = checkpoint.write(folder / "interrupted", beside)
    truth = [run() for _ in range(4)]
    tensoropt.shutdown()
    checkpoint, run = job()
    checkpoint.restore(path)
    found = [run() for _ in range(4)]
    return bool(np.allclose(found, truth, 1e-5))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found: dict[str, Any] = {
        "rank": tensoropt.rank() if IS_PARALLEL else 0,
        "refused": refused() if IS_PARALLEL else {},
    }
    for name, legacy in (("keras", False), ("tf_keras", True)):
        found[name] = trained(folder / name, legacy)
        found[name]["resumed"] = resumed(folder / name, legacy)
    found["goes_on"] = interrupted(folder) if IS_PARALLEL else True
    print(json.dumps(found))
