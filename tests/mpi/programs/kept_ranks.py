"""Random choices of what is kept, under mpirun; and the peak of variables stored in pieces.

mpirun -np N python kept_ranks.py COUNT SEED
"""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.cost.peak.estimated_peak import peak_memory
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.job import Job, current
from tensoropt.frontend.measuring.step_meter import Meter
from tensoropt.graph.from_tensorflow import backward_reads
from tensoropt.parallel.buckets import OVERLAPPED
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tests.oracles.equality import (
    Script,
    Trained,
    choices_of,
    draw,
    draw_kept,
    executor_of,
    mlp,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)

v1 = tf.compat.v1
BATCHED = frozenset({"images", "labels"})
IMAGES = frozenset({"images"})


def errors(job: Job, mesh: Mesh, count: int, seed: int) -> list[float]:
    """The worst error of random strategies with random choices of what is kept, over all ranks."""
    world = MPIWorld(mesh, job.group, job.transport)
    random = np.random.default_rng(seed)
    script = mlp(tf.float64, steps=4, dropout=0.25)
    truth = train_plain(script)
    choices = choices_of(script, mesh, BATCHED)
    found = []
    for number in range(count):
        numbers = draw(script.imported(), choices, mesh, random).numbers
        kept = draw_kept(choices, 1.0, random)
        trained = train_parallel(
            script,
            mesh,
            numbers,
            random_prices(number),
            BATCHED,
            world,
            job.agreement,
            kept=kept,
        )
        found.append(max(job.group.allgather_object(worst_error(trained, truth))))
    return found


def wide(width: int = 1024, batch: int = 128, layers: int = 3) -> Script:
    """Layers whose weights are most of the memory, with an optimizer's slots."""
    graph = tf.Graph()
    with graph.as_default():
        values = v1.placeholder(tf.float32, [None, width], name="images")
        for layer in range(layers):
            initializer = v1.glorot_uniform_initializer(seed=layer)
            weights = v1.get_variable(f"weights{layer}", [width, width], tf.float32, initializer)
            values = tf.tanh(tf.matmul(values, weights, name=f"sum{layer}"), name=f"act{layer}")
        loss = tf.reduce_mean(tf.square(values), name="loss")
        train = tensoropt.train.MomentumOptimizer(1e-2, 0.9).minimize(loss)
    images = np.random.default_rng(0).random((batch, width)).astype(np.float32)
    return Script(graph, train.name, loss.name, ({"images": images},) * 3)


def stored(
    script: Script, mesh: Mesh, axes: tuple[int, ...], kept: str
) -> dict[str, Configuration]:
    """Data parallelism, with weights and slots in pieces over some axes, gathered where read."""
    planned = {}
    everything = tuple(range(len(mesh.axes)))
    for operator in script.imported():
        if operator.is_variable and len(operator.outputs[0].shape) == 2:
            planned[operator.name] = Configuration((axes, ()), kept)
        elif operator.type == "MatMul":
            planned[operator.name] = Configuration((everything, (), ()))
        elif operator.type == "Tanh":
            planned[operator.name] = Configuration((everything, ()))
    return planned


def peak(
    job: Job, mesh: Mesh, script: Script, truth: Trained, axes: tuple[int, ...], kept: str
) -> dict[str, float]:
    """Predicted and measured peak of a step, the most of any rank, and how far training is off."""
    planned = stored(script, mesh, axes, kept)

    def price(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        del kind, axes
        return 1 + bytes_

    world = MPIWorld(mesh, job.group, transport="host")
    executor = executor_of(script.graph, mesh, planned, price, IMAGES, world, job.agreement)
    losses, measured = [], []
    for values in script.feeds:
        with Meter(executor.world) as meter:
            losses.append(executor.run([script.loss], [script.train], values)[script.loss])
        measured.append(meter.peak_bytes() or 0)
    trained = Trained(np.array(losses), executor.run(script.variables, [], {}))
    executor.close()
    graph = script.imported()
    strategy = Strategy(graph, mesh, planned, IMAGES)
    reads = backward_reads(script.graph, graph)
    # Gradients as sent when they come: of those that wait for others the peak would be.
    predicted = peak_memory(strategy, reads, ReshardSteps(mesh, price), OVERLAPPED).bytes
    return {
        "predicted": predicted,
        "measured": max(job.group.allgather_object(min(measured[1:]))),
        "error": max(job.group.allgather_object(worst_error(trained, truth))),
    }


def main(count: int, seed: int) -> None:
    """Print everything found."""
    tensoropt.init(allow_copies=True)
    job = current()
    mesh = Mesh.of(job.group.size)
    everything = tuple(range(len(mesh.axes)))
    found = errors(job, mesh, count, seed)
    script = wide()
    truth = train_plain(script)
    peaks = {
        "whole": peak(job, mesh, script, truth, (), "both"),
        "pieces": peak(job, mesh, script, truth, everything, "both"),
        "gathered again": peak(job, mesh, script, truth, everything, "before"),
    }
    if job.group.rank == 0:
        print(json.dumps({"errors": found, "peaks": peaks}))


main(int(sys.argv[1]), int(sys.argv[2]))
