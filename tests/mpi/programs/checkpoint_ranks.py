"""Trains a split model under a monitored session, from the folder's checkpoint if there is one.

    mpirun -np N python checkpoint_ranks.py FOLDER LAST_STEP [fail]

Rank 0 prints as JSON the losses, and of how many files the last checkpoint is. With ``fail``, saves
that fail on some ranks are tried in between; each rank prints which errors it caught. Without it,
checkpoints are written beside the steps.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tensoropt as tf
from tensoropt.execution.checkpoints.slices import SavedTensor
from tensoropt.frontend.job.job import current

WIDTH = 96


def model() -> tuple[Any, Any, Any]:
    """The placeholder, the loss and the training operator."""
    features = tf.placeholder(tf.float32, [None, WIDTH], name="features")
    initializer = tf.random_normal_initializer(stddev=0.05, seed=1)
    weights = tf.get_variable("weights", [WIDTH, 2 * WIDTH], initializer=initializer)
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weights) - 1.0))
    step = tf.train.get_or_create_global_step()
    return features, loss, tf.train.AdamOptimizer(0.01).minimize(loss, step)


def batch(step: int) -> Any:
    return np.random.default_rng(step).normal(size=(12, WIDTH)).astype(np.float32)


def caught(save: Any) -> str:
    """The error of a call, in words."""
    try:
        save()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def failures(saver: Any, session: Any, folder: str) -> list[str]:
    """Errors of saves in a folder that ranks do not share, or where only one rank cannot write."""
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as own:
        os.chdir(own)
        found = [caught(lambda: saver.save(session, "/proc/self/cwd/model"))]
        os.chdir(home)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    if tf.rank() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most))
    found.append(caught(lambda: saver.save(session, f"{folder}/full")))
    tf.init(save_beside=True)
    saver.save(session, f"{folder}/full")
    found.append(caught(lambda: saver.save(session, f"{folder}/full")))  # the error of the former
    tf.init(save_beside=False)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    found.append(caught(lambda: saver.restore(session, f"{folder}/nothing")))
    saver.save(session, f"{folder}/full")
    return found


def check_first_rank_alone(session: Any) -> None:
    """The first rank gets a split variable whole, and the other ranks nothing."""
    shape = (WIDTH, 2 * WIDTH)
    saved = [SavedTensor("whole", "weights", "float32", shape, shape, (0, 0))]
    truth = session.run("weights:0")
    for _ in range(2):
        with session.executor() as (executor, _):
            found = executor.variables.on_first(saved, current().group)
        assert len(found) == int(tf.rank() == 0)
        assert all(np.array_equal(value, truth) for value in found.values())


def main(folder: str, last: int, fail: bool) -> None:
    """Train."""
    tf.init(save_beside=not fail)
    features, loss, training = model()
    plan = tf.find_strategy(batch_size=12, algorithm="tofu")
    tf.build_execution_graph(plan=plan)
    losses: list[float] = []
    saver = tf.train.Saver()  # a monitored session lets nothing be added
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=folder,
        save_checkpoint_steps=2,
        hooks=[tf.train.StopAtStepHook(last_step=last)],
    ) as session:
        while not session.should_stop():
            done = session.run(tf.train.get_global_step())
            losses.append(float(session.run([loss, training], {features: batch(int(done))})[0]))
    if tf.rank() == 0:
        path = tf.train.latest_checkpoint(folder)
        files = len(list(Path(folder).glob(f"{Path(path).name}.data*")))
        print(json.dumps({"losses": losses, "files": files, "path": path}))
    if fail:
        with tf.Session() as session:
            print(json.dumps({"caught": failures(saver, session, folder)}))
            session.run(training, {features: batch(last)})
            check_first_rank_alone(session)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), "fail" in sys.argv[3:])
