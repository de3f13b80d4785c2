"""A training script that waits, in a phase, for a fault of its machine or network.

    mpirun -np N python training.py PHASE

PHASE is one of `PHASES`. The last rank makes the file ``struck`` when it is there, and goes on a
little later. In a save it does so before it writes its part of the second checkpoint.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import tensoropt as tf

__all__ = ["PHASES"]

PHASES = ("start", "step", "save", "between_steps")
STEPS, MIDDLE, SAVE_EVERY = 9, 4, 3
SECONDS_OF_FAULT = 2.0


class Phase:
    """The phase in which the fault happens."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_over = tf.rank() != tf.size() - 1

    def at(self, name: str) -> None:
        """Wait for the fault if this is its phase and its rank."""
        if name == self.name and not self.is_over:
            self.is_over = True
            Path("struck").touch()
            time.sleep(SECONDS_OF_FAULT)


def main(name: str) -> None:
    """Plan, train, save."""
    tf.init()
    files = importlib.import_module("tensoropt.execution.checkpoints.files")
    phase = Phase(name)
    features = tf.placeholder(tf.float32, [None, 16], name="features")
    weights = tf.get_variable("weights", [16, 16], initializer=tf.ones_initializer())

    def check() -> Any:
        if done == MIDDLE:
            phase.at("step")
        return np.float32(0)

    checked = tf.numpy_function(check, [], tf.float32, stateful=True)
    checked.set_shape([])
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weights)))
    step = tf.group(tf.train.MomentumOptimizer(0.001, 0.9).minimize(loss), checked)
    phase.at("start")
    plan = tf.find_strategy(batch_size=8, algorithm="data_parallel", fetches=[step])
    tf.build_execution_graph(plan=plan)
    batch = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    saver = tf.compat.v1.train.Saver()
    if tf.rank() == 0:
        os.makedirs("checkpoints", exist_ok=True)
    is_visible = files.is_visible

    def sees_slowly(*arguments: Any) -> Any:
        if done > MIDDLE:
            phase.at("save")
        return is_visible(*arguments)

    vars(files)["is_visible"] = sees_slowly
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for done in range(STEPS):
            session.run(step, {features: batch})
            if done == MIDDLE:
                phase.at("between_steps")
            if (done + 1) % SAVE_EVERY == 0:
                saver.save(session, "checkpoints/model", global_step=done)
    sys.stdout.write(f"rank {tf.rank()} has trained\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
