"""Candidates measured on two ranks. Every rank checks and writes what it found to a file.

    mpirun -np 2 python validate_ranks.py CLUSTER.json FOLDER

CLUSTER.json is a description of this machine, with a network that is told to be useless.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow

import tensoropt as tf
from tensoropt.frontend.measuring.trial_run import TrialRun

BATCH, WIDTH = 256, 512
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(BATCH, WIDTH)).astype(np.float32)
STEP = TrialRun.step
v1 = tensorflow.compat.v1


def model() -> tuple[Any, Any, Any]:
    """Placeholder, loss and training operator of three layers with dropout."""
    features = tf.placeholder(tf.float32, [None, WIDTH], name="features")
    values = features
    for layer in range(3):
        initializer = tf.random_normal_initializer(stddev=0.1, seed=layer)
        weights = tf.get_variable(f"weights{layer}", [WIDTH, WIDTH], initializer=initializer)
        values = tf.nn.relu(tf.matmul(values, weights))
    values = tf.nn.dropout(values, rate=0.1, seed=7)
    loss = tf.reduce_mean(tf.square(values), name="loss")
    return features, loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


def train(session: Any, features: Any, loss: Any, step: Any) -> list[Any]:
    """Losses of three steps, and all variables after them."""
    feed = {features: FEATURES}
    losses = [session.run([loss, step], feed)[0] for _ in range(3)]
    return [*losses, *session.run(tf.global_variables())]


def figures(run: TrialRun) -> tuple[float, float]:
    """Run a step. Seconds in all and in collectives, as if points of the frontier were the fastest
    on the first rank, and data parallelism on the slowest rank of each."""
    STEP(run)
    if run.plan.algorithm == "data_parallel":
        return 0.002, 0.001
    return (0.001, 0.0) if tf.rank() == 0 else (0.003, 0.0005)


def overruled() -> dict[str, Any]:
    """Plan with wrong costs, measure, train; beside plain TensorFlow."""
    with v1.Graph().as_default(), v1.Session() as session:
        script = model()
        session.run(v1.global_variables_initializer())
        truth = train(session, *script)
    script = model()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with mock.patch.object(TrialRun, "step", figures):
            plan = tf.find_strategy(batch_size=BATCH, validate=2, pipeline=False)
        tf.build_execution_graph(plan=plan)
        found = train(session, *script)
    for value, right in zip(found, truth, strict=True):
        np.testing.assert_allclose(value, right, rtol=2e-5, atol=1e-6)
    return plan.to_json()


def memory_ends_on_one_rank() -> dict[str, Any]:
    """The first candidate's first step finds no memory on rank 1, while rank 0 waits for it."""
    steps = []

    def elements(value: Any) -> Any:
        steps.append(value)
        return value * 2**44 if tf.rank() == 1 and len(steps) == 1 else value

    with v1.Graph().as_default():
        _, loss, _ = model()
        count = tf.numpy_function(elements, [np.int64(1)], tf.int64)
        count.set_shape([])
        scale = tf.reduce_max(tf.fill([count], 2.0))
        step = tf.GradientDescentOptimizer(0.1).minimize(scale * loss)
        alone: Any = {"pipeline": False}  # each rank has the operator
        return tf.find_strategy(batch_size=BATCH, fetches=[step], validate=1, **alone).to_json()


def main() -> None:
    cluster, folder = sys.argv[1:]
    tf.init(cluster=cluster, allow_copies=True)
    found = {"overruled": overruled(), "memory": memory_ends_on_one_rank()}
    Path(folder, f"found{tf.rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
