"""A training script with a fault on one rank.

    mpirun -np N python training.py PHASE FAULT

PHASE is one of `PHASES`, FAULT one of `FAULTS`. The fault makes the file ``struck``. In the cases
"interrupted" and "terminated" the script waits for a signal from outside.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import tensoropt as tf

__all__ = ["FAULTS", "PHASES"]

PHASES = ("before_plan", "in_search", "first_step", "mid_training", "in_save", "at_end")
FAULTS = ("raises", "exits", "leaves", "killed", "stopped", "interrupted", "terminated")
FROM_OUTSIDE = ("interrupted", "terminated")

STEPS, MIDDLE, SAVE_EVERY = 12, 6, 3
MOST_STEPS = 20_000  # of a job that is interrupted
WAIT_SECONDS = 20.0


class Fault:
    """A fault that happens once, on one rank.

    In the search and in saves the first rank has the fault, because only this rank searches, and
    other ranks wait for it in a save. In other phases the last rank has the fault.
    """

    def __init__(self, phase: str, kind: str) -> None:
        self.phase, self.kind = phase, kind
        self.rank = 0 if phase in ("in_search", "in_save") else tf.size() - 1
        self.is_over = False

    def at(self, phase: str) -> None:
        """Cause the fault if this is its phase and its rank."""
        if phase != self.phase or tf.rank() != self.rank or self.is_over:
            return
        self.is_over = True
        Path("struck").touch()
        if self.kind == "raises":
            raise ValueError(f"a fault on rank {self.rank}")
        if self.kind == "exits":
            sys.exit(3)
        if self.kind == "leaves":
            os._exit(7)
        if self.kind in FROM_OUTSIDE:
            if phase in ("before_plan", "at_end"):
                time.sleep(WAIT_SECONDS)
            return
        os.kill(os.getpid(), signal.SIGKILL if self.kind == "killed" else signal.SIGSTOP)

    def soon(self, phase: str) -> None:
        """Cause the fault while another thread works. An error would end only a thread, so the
        save fails instead."""
        if phase != self.phase or tf.rank() != self.rank or self.is_over:
            return
        if self.kind in ("raises", "exits"):
            self.is_over = True
            Path("struck").touch()
            Path("checkpoints").rename("checkpoints.gone")
            Path("checkpoints").touch()
            return
        threading.Timer(0.002, self.at, [phase]).start()


def main(phase: str, kind: str) -> None:
    """Plan, train, save."""
    tf.init()
    fault = Fault(phase, kind)
    features = tf.placeholder(tf.float32, [None, 16], name="features")
    weights = tf.get_variable("weights", [16, 16], initializer=tf.ones_initializer())

    def check() -> Any:
        fault.at("first_step" if done == 0 else "mid_training" if done == MIDDLE else "")
        return np.float32(0)

    checked = tf.numpy_function(check, [], tf.float32, stateful=True)
    checked.set_shape([])
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weights)))
    optimizer = tf.train.MomentumOptimizer(0.001, 0.9)
    step = tf.group(optimizer.minimize(loss), checked)
    fault.at("before_plan")
    planning = importlib.import_module("tensoropt.planner.choose")
    chosen = planning.chosen

    def fail_and_choose(*arguments: Any) -> Any:
        fault.at("in_search")
        if phase == "in_search" and kind in FROM_OUTSIDE:
            time.sleep(WAIT_SECONDS)
        return chosen(*arguments)

    vars(planning)["chosen"] = fail_and_choose
    plan = tf.find_strategy(batch_size=8, algorithm="data_parallel", fetches=[step])
    tf.build_execution_graph(plan=plan)
    batch = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    saver = tf.compat.v1.train.Saver()
    if tf.rank() == 0:
        os.makedirs("checkpoints")
    is_long = kind in FROM_OUTSIDE and phase in ("first_step", "mid_training", "in_save")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for done in range(MOST_STEPS if is_long else STEPS):
            session.run(step, {features: batch})
            if (done + 1) % SAVE_EVERY == 0:
                fault.soon("in_save")
                saver.save(session, "checkpoints/model", global_step=done)
    fault.at("at_end")
    sys.stdout.write(f"rank {tf.rank()} has trained\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
