"""The ways to train a model: plain Keras in one process, Horovod, and ours."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from collectives.transport.launch import (
    available_cores,
    detect,
    mpi_settings,
    reads_memory,
    shared_memory_bytes,
)

__all__ = ["WAYS", "Way", "set_threads", "way_of"]

WAYS = ("keras", "horovod", "ours")


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """A model made ready for its compilation.

    Attributes:
        rank: number of this process.
        shards: number of shards of the data, each of which one rank reads; 1 if the script gives
            all ranks the whole data.
        writes: whether this process's script writes checkpoints and summaries.
        callbacks: callbacks that come before those that write.
        takes_batches: whether the model's functions take batches from Python, as ours do.
    """

    rank: int = 0
    shards: int = 1
    writes: bool = True
    callbacks: Sequence[Any] = ()
    takes_batches: bool = False


def way_of(name: str, model: Any) -> Way:
    """Make a model ready, in place.

    Args:
        name: one of `WAYS`.
        model: a Keras model that is not compiled.
    """
    if name == "ours":
        import tensoropt

        tensoropt.parallelize(model)
        return Way(tensoropt.rank(), takes_batches=True)
    return Way() if name == "keras" else _horovod(model)


def set_threads(name: str, ranks: int) -> None:
    """Set TensorFlow's threads before it starts: as many as ranks in one process, a rank's share of
    the cores for Horovod. Ours sets them when it is imported, which scripts do at their top."""
    if name == "ours":
        importlib.import_module("tensoropt")
        return
    cores = len(os.sched_getaffinity(0))
    threads = ranks if name == "keras" else max(1, cores // ranks)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def _horovod(model: Any) -> Way:
    """Horovod with a gradient tape: its ``DistributedOptimizer`` (0.28.1) refuses Keras 3.

    MPI has the settings that ours gives it: with more ranks than cores, a rank that waits for the
    others would hold the core on which they make their batches.
    """
    import horovod.tensorflow as hvd

    launch = detect()
    if launch is not None:
        settings = mpi_settings(launch, available_cores(), shared_memory_bytes(), reads_memory())
        os.environ.update({**settings, **os.environ})
    hvd.init()

    def train_step(data: Any) -> Mapping[str, Any]:
        inputs, targets = data
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = model.compute_loss(inputs, targets, outputs)
        weights = model.trainable_weights
        values = [weight.value for weight in weights]
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, values)
        model.optimizer.apply(gradients, weights)
        model._loss_tracker.update_state(loss)
        return dict(model.compute_metrics(inputs, targets, outputs))

    class Together(keras.callbacks.Callback):  # type: ignore[misc]
        """Sends the first rank's variables after the first batch, and averages metrics, as
        Horovod's callbacks do for Keras 2."""

        is_sent = False

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del batch, logs
            if not self.is_sent:
                variables = [*self.model.variables, *self.model.optimizer.variables]
                hvd.broadcast_variables([variable.value for variable in variables], 0)
                self.is_sent = True

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            del epoch
            for name in sorted(logs):
                logs[name] = float(hvd.allreduce(tf.constant(logs[name], tf.float32), name=name))

    model.train_step = train_step
    return Way(hvd.rank(), hvd.size(), hvd.rank() == 0, (Together(),))
