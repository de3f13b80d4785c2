"""A pipeline of three ranks, of which the last goes wrong in its second step.

mpirun -np 3 python stage_failures.py CASE
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.execution.stages.stage_ranks import Pipeline, StageRanks, mpi_stages
from tensoropt.frontend.job.job import current
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import Script
from tests.oracles.equality.stages import staged_executor

v1 = tf.compat.v1
ODD = 2
CASES = ("is_killed", "is_stopped", "fails_alone", "is_out_of_memory", "has_another_order")


def script_of(case: str, rank: int) -> Script:
    """Three layers, one a stage; what the last does besides is fed."""
    graph = tf.Graph()
    with graph.as_default():
        images = v1.placeholder(tf.float32, [None, 4], name="images")
        size = v1.placeholder(tf.int32, [], name="size")
        values: Any = images
        for layer in range(3):
            weights = v1.get_variable(f"weights{layer}", [4, 4], use_resource=True)
            values = tf.matmul(values, weights, name=f"layer{layer}")

        def act(given: Any) -> Any:
            if rank == ODD and given > 1:
                time.sleep(1)  # the others have begun the step by then, and wait for a message
                # To this thread: the main one takes a signal to the process, and this one goes on.
                number = signal.SIGSTOP if case == "is_stopped" else signal.SIGKILL
                signal.pthread_kill(threading.get_ident(), number)
            return np.float32(given)

        if case in ("is_killed", "is_stopped"):
            factor = v1.py_func(act, [size], tf.float32)
            factor.set_shape([])
        elif case == "is_out_of_memory":
            factor = 1 + tf.reduce_mean(tf.zeros([size * (1 << 20), 1 << 24])) * 0
        else:
            factor = tf.gather(tf.ones([2]), size)
        loss = tf.reduce_mean(tf.square(values) * factor, name="loss")
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    feeds = {"images": np.ones((4, 4), np.float32), "size": np.asarray(0, np.int32)}
    return Script(graph, train.name, loss.name, (feeds,))


def main(case: str) -> None:
    tensoropt.init(allow_copies=True)
    job = current()
    script = script_of(case, job.group.rank)
    worlds = mpi_stages([Mesh.of(1)] * 3, job.group)
    stages = tuple(StageRanks(world, {}, lambda *_: ()) for world in worlds.stages)
    names = [op.name for op in script.imported()]
    stage_of = {name: int(name[5]) for name in names if name.startswith("layer")}
    other = case == "has_another_order" and job.group.rank == ODD
    schedule = "gpipe" if other else "1f1b"
    pipeline = Pipeline(stages, stage_of, 4, schedule, worlds.everyone)
    executor = staged_executor(script, pipeline, job.agreement)
    for size in (1, 4):
        fed = {**script.feeds[0], "size": np.asarray(size, np.int32)}
        try:
            executor.run([], [script.train], fed)
        except tf.errors.OpError:
            sys.stdout.write("skipped\n")
    sys.stdout.write("went on\n")


main(sys.argv[1])
