"""A training script that continues from its last checkpoint and makes its own plan.

    mpirun -np N python -m benchmarks.checkpoints.training FOLDER LAST_STEP

Messages: ``rank R PID``, and ``step NUMBER LOSS`` after each step.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tensoropt as tf
from benchmarks.checkpoints.jobs import say

__all__ = ["batch", "model"]

_WIDTH = 64


def model() -> tuple[Any, Any, Any]:
    """The placeholder, the loss and the training operator."""
    features = tf.placeholder(tf.float32, [None, _WIDTH], name="features")
    values = features
    for layer in range(2):
        initializer = tf.random_normal_initializer(stddev=0.1, seed=layer)
        weights = tf.get_variable(f"weights{layer}", [_WIDTH, _WIDTH], initializer=initializer)
        values = tf.nn.relu(tf.matmul(values, weights))
    loss = tf.reduce_mean(tf.square(values - features))
    step = tf.train.get_or_create_global_step()
    return features, loss, tf.train.AdamOptimizer(0.003).minimize(loss, step)


def batch(step: int) -> Any:
    """The batch of a step; it is the same in every run."""
    return np.random.default_rng(step).random((16, _WIDTH), np.float32)


def main(folder: Path, last: int) -> None:
    """Train."""
    tf.init()
    say(folder, f"rank {tf.rank()} {os.getpid()}")
    features, loss, training = model()
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=str(folder),
        save_checkpoint_steps=5,
        hooks=[tf.train.StopAtStepHook(last_step=last)],
    ) as session:
        while not session.should_stop():
            done = int(session.run(tf.train.get_global_step()))
            found = session.run([loss, training], {features: batch(done)})[0]
            if tf.rank() == 0:
                say(folder, f"step {done} {float(found)!r}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
