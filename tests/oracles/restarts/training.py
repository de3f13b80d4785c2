"""A training that goes on from its last checkpoint, through one of three doors.

    tensoropt run -np N training.py -- DOOR FOLDER [KILLED_RANK KILLED_STEP]

DOOR is one of `DOORS`. In the first start, the rank kills itself after the step. The first rank
appends a line to ``FOLDER/log`` after each step: the number of the start, the step, the loss and
the numbers of the examples. A step has its line before a checkpoint has the step, so a checkpoint
has no step without a line, whenever the first rank ends. Each rank leaves its process's number in
``FOLDER/START.RANK``. The environment variable ``STEP_SECONDS`` is the time between steps.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["DOORS", "EPOCHS", "EXAMPLES", "STEPS"]

EXAMPLES, BATCH, EPOCHS, WIDTH = 120, 12, 6, 16
STEPS = EXAMPLES // BATCH * EPOCHS
SAVE_EVERY = 4
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.15"))
RATE, DECAY_STEPS = 0.05, 5.0
LAYERS = 2


class Log:
    """The log of a job; the first rank writes."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.start = int(os.environ.get("TENSOROPT_RESTARTS", "0"))
        self.folder, self.rank, self.is_first = folder, rank, rank == 0
        (folder / f"{self.start}.{rank}.new").write_text(str(os.getpid()))
        (folder / f"{self.start}.{rank}.new").rename(folder / f"{self.start}.{rank}")

    def step(self, number: int, loss: float, examples: Iterable[int]) -> None:
        """Append a step, from 0, and wait a little, so that a loss can come between steps."""
        if self.is_first:
            entry = {
                "start": self.start,
                "step": number,
                "loss": loss,
                "ids": [*map(int, examples)],
            }
            with (self.folder / "log").open("a") as file:
                file.write(f"{json.dumps(entry)}\n")
        if self.start == 0 and sys.argv[3:] == [str(self.rank), str(number)]:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(STEP_SECONDS)


def features_of(ids: Any, sin: Callable[[Any], Any]) -> Any:
    """The features of examples, from their numbers, as a float32 array or tensor."""
    return sin(ids[:, None] * np.linspace(0.1, 2.0, WIDTH, dtype=np.float32))


def initial(layer: int) -> Any:
    """The weights of a layer at the start."""
    values = np.random.default_rng(layer).normal(size=(WIDTH, WIDTH)) * 0.3
    return values.astype(np.float32)


def dataset_of(tf: Any) -> Any:
    """Batches of the numbers of the examples, in another order in each epoch."""
    data = tf.data.Dataset.range(EXAMPLES).shuffle(40, seed=3).repeat(EPOCHS)
    return data.batch(BATCH, drop_remainder=True)


def graph(folder: Path) -> None:
    """A graph script, with a ``MonitoredTrainingSession``."""
    tf = importlib.import_module("tensoropt")
    tf.init()
    log = Log(folder, tf.rank())
    ids = tf.data.make_one_shot_iterator(dataset_of(tf)).get_next()
    values = features = features_of(tf.cast(ids, tf.float32), tf.sin)
    for layer in range(LAYERS):
        weights = tf.get_variable(f"w{layer}", initializer=initial(layer))
        values = tf.nn.dropout(tf.tanh(tf.matmul(values, weights)), rate=0.1, seed=7 + layer)
    loss = tf.reduce_mean(tf.square(values - features))
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(RATE, step, DECAY_STEPS, 0.9)
    training = tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, step)
    plan = tf.find_strategy(algorithm="data_parallel", fetches=[loss, ids, training])
    tf.build_execution_graph(plan=plan)
    fetched, done = [loss, ids, training], 0

    class Logs(tf.train.SessionRunHook):  # type: ignore[name-defined,misc]
        """Logs steps."""

        def before_run(self, run_context: Any) -> Any:
            """Ask for the values of a step."""
            is_step = run_context.original_args.fetches is fetched
            return tf.train.SessionRunArgs([loss, ids]) if is_step else None

        def after_run(self, run_context: Any, run_values: Any) -> None:
            """Log a step."""
            del run_context
            if run_values.results is not None:
                found, examples = run_values.results
                log.step(done, float(found), examples)

    checkpoints = str(folder / "checkpoints")
    saver = tf.train.CheckpointSaverHook(checkpoints, save_steps=SAVE_EVERY)
    session = tf.train.MonitoredTrainingSession(
        checkpoint_dir=checkpoints, save_checkpoint_secs=None, hooks=[Logs(), saver]
    )
    with session:
        done = int(session.run(step))
        while done < STEPS and not session.should_stop():
            session.run(fetched)
            done += 1


def tape(folder: Path) -> None:
    """A ``GradientTape`` step, with a ``tf.train.CheckpointManager``."""
    keras = importlib.import_module("keras")
    tf = importlib.import_module("tensorflow")
    tensoropt = importlib.import_module("tensoropt")
    tf.random.set_seed(5)
    weights = [tf.Variable(initial(layer)) for layer in range(LAYERS)]
    schedule = keras.optimizers.schedules.ExponentialDecay(RATE, DECAY_STEPS, 0.9)
    optimizer = keras.optimizers.SGD(schedule, momentum=0.9)
    optimizer.build(weights)

    def train_step(features: Any) -> Any:
        with tf.GradientTape() as tape:
            values = features
            for layer, matrix in enumerate(weights):
                values = tf.tanh(tf.matmul(values, matrix))
                values = tf.nn.dropout(values, rate=0.1, seed=7 + layer)
            loss = tf.reduce_mean(tf.square(values - features))
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    step = tensoropt.parallelize(train_step, algorithm="data_parallel")
    log = Log(folder, tensoropt.rank())
    iterator = iter(dataset_of(tf))
    done = tf.Variable(0, trainable=False)
    checkpoint = tf.train.Checkpoint(
        weights=weights, optimizer=optimizer, iterator=iterator, done=done
    )
    manager = tf.train.CheckpointManager(checkpoint, str(folder / "checkpoints"), 2)
    checkpoint.restore(manager.latest_checkpoint)
    while int(done) < STEPS:
        ids = next(iterator)
        loss = step(features_of(tf.cast(ids, tf.float32), tf.sin))
        log.step(int(done), float(loss), ids.numpy())
        done.assign_add(1)
        if int(done) % SAVE_EVERY == 0:
            manager.save()


def fit(folder: Path) -> None:
    """Keras's ``fit``, with ``BackupAndRestore`` within epochs."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    keras = importlib.import_module("keras")
    tf = importlib.import_module("tensorflow")
    tensoropt = importlib.import_module("tensoropt")
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential([keras.Input((WIDTH,))])
    for _ in range(LAYERS):
        model.add(layers.Dense(WIDTH, "tanh"))
        model.add(layers.Dropout(0.1))
    model = tensoropt.parallelize(model, algorithm="data_parallel")
    log = Log(folder, tensoropt.rank())
    schedule = keras.optimizers.schedules.ExponentialDecay(RATE, DECAY_STEPS, 0.9)

    def loss(targets: Any, found: Any) -> Any:
        return tf.reduce_mean(tf.square(targets[:, :-1] - found), axis=-1)

    class Seen(keras.metrics.Metric):  # type: ignore[name-defined,misc]
        """Keeps the numbers of the examples of a batch, which are in the last column."""

        def __init__(self) -> None:
            super().__init__(name="seen")
            self.ids = self.add_weight(shape=(BATCH,), initializer="zeros", name="ids")

        def update_state(self, targets: Any, found: Any, sample_weight: Any = None) -> None:
            """Keep a batch's."""
            del found, sample_weight
            self.ids.assign(targets[:, -1])

        def result(self) -> Any:
            """Return a number, as Keras wants."""
            return tf.reduce_sum(self.ids)

    class Batches(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        """Logs batches."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            """Note the epoch."""
            del logs
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """Log a batch; the loss is the mean of the epoch's batches so far."""
            number = self.epoch * (EXAMPLES // BATCH) + batch
            log.step(number, float(logs["loss"]), seen.ids.numpy())

    def example(ids: Any) -> Any:
        features = features_of(tf.cast(ids, tf.float32), tf.sin)
        return features, tf.concat([features, tf.cast(ids, tf.float32)[:, None]], 1)

    seen = Seen()
    model.compile(keras.optimizers.SGD(schedule, momentum=0.9), loss, metrics=[seen])
    data = tf.data.Dataset.range(EXAMPLES).shuffle(40, seed=3).batch(BATCH, drop_remainder=True)
    backup = keras.callbacks.BackupAndRestore(
        str(folder / "checkpoints"), save_freq=SAVE_EVERY, delete_checkpoint=False
    )
    model.fit(data.map(example), epochs=EPOCHS, verbose=0, callbacks=[Batches(), backup])


DOORS: Mapping[str, Callable[[Path], None]] = {"graph": graph, "tape": tape, "fit": fit}

if __name__ == "__main__":
    DOORS[sys.argv[1]](Path(sys.argv[2]))
