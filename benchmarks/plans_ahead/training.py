"""A training that ``benchmarks.plans_ahead`` starts, and that loses a machine in its first start.

    tensoropt run -np N training.py -- MODEL FOLDER

The first rank appends a line to ``FOLDER/log`` for each step: the number of the start, the time at
which its process began, and the time at which the step ended, in seconds of the system's clock.
The first start saves a checkpoint after some steps and goes on until it is ended; the next one goes
on from the checkpoint for a few steps.
"""

from __future__ import annotations

import time

BEGUN = time.time()

import json  # noqa: E402 - all imports are part of the time to the first step
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import tensoropt as tf  # noqa: E402
from benchmarks.speed.models import BATCHES, training_step  # noqa: E402

__all__: list[str] = []

CHECKPOINT_STEP, LAST_STEPS = 10, 3


def main(model: str, folder: Path) -> None:
    """Train; every rank calls."""
    tf.init()
    start = int(os.environ.get("TENSOROPT_RESTARTS", "0"))
    step = training_step(model, BATCHES[model])
    with step.graph.as_default():
        shapes = {placeholder: value.shape for placeholder, value in step.feeds.items()}
        tf.build_execution_graph(plan=tf.find_strategy(shapes=shapes, fetches=[step.train]))
        saver = tf.train.Saver()
        with tf.Session() as session:
            latest = tf.train.latest_checkpoint(str(folder / "checkpoints"))
            if latest:
                saver.restore(session, latest)
            else:
                session.run(tf.global_variables_initializer())
            done = 0
            while start == 0 or done < LAST_STEPS:
                session.run(step.train, step.feeds)
                done += 1
                if tf.rank() == 0:
                    entry = {"start": start, "begun": BEGUN, "ended": time.time()}
                    with (folder / "log").open("a") as file:
                        file.write(f"{json.dumps(entry)}\n")
                if start == 0 and done == CHECKPOINT_STEP:
                    saver.save(session, str(folder / "checkpoints" / "model"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
