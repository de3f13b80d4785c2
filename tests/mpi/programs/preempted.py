"""Training in a monitored session, until a rank gets SIGTERM. Ranks write what they have done.

mpirun -np 2 python preempted.py FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

import tensoropt as tf

ODD, STEPS_BEFORE = 1, 3


def main() -> None:
    folder = Path(sys.argv[1])
    tf.init()
    features = tf.placeholder(tf.float32, [None, 4], name="features")
    weights = tf.get_variable("weights", [4, 4], initializer=tf.ones_initializer())
    counter = tf.train.get_or_create_global_step()
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weights)))
    step = tf.train.GradientDescentOptimizer(0.01).minimize(loss, counter)
    done = 0
    try:
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=str(folder / "saved"), save_checkpoint_steps=1000
        ) as session:
            while not session.should_stop():
                session.run(step, {features: np.ones((8, 4), np.float32)})
                done += 1
                if done == STEPS_BEFORE and tf.rank() == ODD:
                    os.kill(os.getpid(), signal.SIGTERM)
    finally:
        (folder / f"rank{tf.rank()}.json").write_text(json.dumps(done))


if __name__ == "__main__":
    main()
