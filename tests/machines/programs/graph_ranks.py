"""Every rank trains random strategies and a random pipeline, and compares with plain TensorFlow;
then a checkpoint is saved and restored.

    mpirun -np N python graph_ranks.py FOLDER
    mpirun -np N python graph_ranks.py FOLDER unshared
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.execution.stages.stage_ranks import mpi_stages
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.job import current
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import (
    choices_of,
    draw,
    mlp,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.oracles.equality.stages import draw_pipeline, train_pipeline

v1 = tf.compat.v1
STRATEGIES = 2
BATCHED = frozenset({"images", "labels"})
BATCH = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)


def errors() -> list[float]:
    """The worst error of each strategy and of a pipeline, of all ranks."""
    job = current()
    mesh = Mesh.of(job.group.size)
    script = mlp(tf.float64, 3, dropout=0.25)
    truth = train_plain(script)
    random = np.random.default_rng(mesh.size)
    found = []
    for number in range(STRATEGIES):
        choices = choices_of(script, mesh, BATCHED)
        numbers = draw(script.imported(), choices, mesh, random).numbers
        world, prices = MPIWorld(mesh, job.group), random_prices(number)
        trained = train_parallel(script, mesh, numbers, prices, BATCHED, world, job.agreement)
        found.append(worst_error(trained, truth))
    sizes = [mesh.size // 2] * 2
    pipeline = draw_pipeline(
        script, random, sizes, functools.partial(mpi_stages, group=job.group), 4
    )
    found.append(worst_error(train_pipeline(script, pipeline, job.agreement), truth))
    return [max(each) for each in zip(*job.group.allgather_object(found), strict=True)]


def training() -> tuple[Any, Any]:
    """A training step, and the placeholder that it is fed."""
    features = v1.placeholder(tf.float32, [None, 16], name="features")
    weights = v1.get_variable("weights", [16, 16], initializer=v1.ones_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weights)))
    step = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, v1.train.get_or_create_global_step())
    return step, features


def resumed(folder: str) -> bool:
    """Whether a training that goes on from a checkpoint has the numbers of one that was not
    interrupted, and plain TensorFlow reads the checkpoint."""
    weights = []
    with tf.Graph().as_default():
        step, features = training()
        saver = v1.train.Saver()
        with tensoropt.Session() as session:
            session.run(v1.global_variables_initializer())
            for number in range(4):
                session.run(step, {features: BATCH})
                if number == 1:
                    saver.save(session, f"{folder}/model")
                    middle = session.run("weights:0")
            weights.append(session.run("weights:0"))
        with tensoropt.Session() as session:
            saver.restore(session, f"{folder}/model")
            for _ in range(2):
                session.run(step, {features: BATCH})
            weights.append(session.run("weights:0"))
    read = tf.train.load_checkpoint(f"{folder}/model").get_tensor("weights")
    return np.array_equal(*weights) and np.array_equal(middle, read)


def unshared(folder: str) -> None:
    """Print a line for each step; the folder of the checkpoints is another one on each machine."""
    step, features = training()
    with tensoropt.train.MonitoredTrainingSession(checkpoint_dir=folder) as session:
        for number in range(3):
            session.run(step, {features: BATCH})
            print(f"step {number}", flush=True)


def main(folder: str, *case: str) -> None:
    tensoropt.init(allow_copies=True)
    if case:
        unshared(folder)
        return
    found = {"errors": errors(), "resumed": resumed(folder), "hosts": sorted(set(hosts()))}
    if current().group.rank == 0:
        print(json.dumps(found))


def hosts() -> tuple[str, ...]:
    return tuple(current().group.hosts)


if __name__ == "__main__":
    main(*sys.argv[1:])
