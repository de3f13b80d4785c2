"""A drop-in script on several ranks: data pipeline, monitored session, checkpoint, summaries.

Trains twice, the second time from the checkpoint of the first; rank 0 prints the losses of both
and the checkpoint's contents as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow

import tensoropt as tf


def train(folder: str, last_step: int) -> list[float]:
    random = np.random.default_rng(0)
    features = random.normal(size=(40, 8)).astype(np.float32)
    labels = random.integers(4, size=40).astype(np.int64)
    with tensorflow.Graph().as_default():

        def noted(x: Any, y: Any) -> tuple[Any, Any]:
            tensorflow.print(x[0], output_stream="file://calls")  # a rank has a folder of its own
            return 2.0 * x, y

        data = tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(40, seed=5).repeat()
        data = data.map(noted, num_parallel_calls=2).batch(8).map(lambda x, y: (x / 2.0, y))
        x, y = tf.data.make_one_shot_iterator(data).get_next()
        initializer = tf.random_normal_initializer(stddev=0.1, seed=1)
        weights = tf.get_variable("weights", [8, 4], initializer=initializer)
        noise = tf.get_variable("noise", [8, 4], trainable=False)  # unseeded: one draw for all
        loss = tf.losses.sparse_softmax_cross_entropy(y, tf.matmul(x, weights + 0.0 * noise))
        step = tf.train.get_or_create_global_step()
        training = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, step)
        tf.summary.scalar("loss", loss)
        hooks: list[Any] = [
            tf.train.StopAtStepHook(last_step=last_step),
            tf.train.LoggingTensorHook({"loss": loss}, every_n_secs=0.01),
        ]
        losses = []
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=hooks, save_checkpoint_secs=0.05, save_summaries_steps=2
        ) as session:
            while not session.should_stop():
                losses.append(float(session.run([loss, training])[0]))
        return losses


def save(folder: str) -> str:
    """Number a checkpoint by a variable, which the saver reads by itself."""
    with tensorflow.Graph().as_default(), tf.Session() as session:
        step = tf.get_variable("step", initializer=3)
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, f"{folder}/numbered", global_step=step)
    return Path(path).name


def supervise(folder: str) -> str:
    """Train under a supervisor that saves all the time; name the last checkpoint."""
    with tensorflow.Graph().as_default():
        weights = tf.get_variable("weights", [4], initializer=tf.ones_initializer())
        step = tf.train.get_or_create_global_step()
        loss = tf.reduce_sum(tf.square(weights))
        training = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        supervisor = tf.train.Supervisor(
            logdir=folder, global_step=step, save_model_secs=0.001, save_summaries_secs=0.001
        )
        with supervisor.managed_session() as session:
            for _ in range(3):
                session.run(training)
        return Path(tf.train.latest_checkpoint(folder)).name


def main() -> None:
    tf.init()
    folder = sys.argv[1]
    own = Path(folder) / f"rank{tf.rank()}"
    own.mkdir()
    os.chdir(own)
    losses = train(folder, 6), train(folder, 9)
    saved = save(folder + "/other"), supervise(folder + "/supervised")
    if tf.rank() == 0:
        reader = tensorflow.compat.v1.train.load_checkpoint(folder)
        found = {name: reader.get_tensor(name).tolist() for name in ("weights", "global_step")}
        files = sorted(path.name.split(".")[0] for path in Path(folder).iterdir())
        print(
            json.dumps({"losses": losses, "events": files.count("events"), "saved": saved, **found})
        )


if __name__ == "__main__":
    main()
