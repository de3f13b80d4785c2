"""Every rank trains random strategies, with dropout, and compares with plain TensorFlow: all in
float64, whose bar is the closer one, and every other in float32; every other one by microbatches.
Of four ranks these are as if on two machines, within which and across which all collectives go.

mpirun -np N python equality_ranks.py COUNT SEED
"""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

import tensoropt
from collectives import Group
from tensoropt.execution.world.mpi_world import MPIWorld, Transport
from tensoropt.frontend.job.job import current
from tensoropt.parallel.choices.choices import strategy_choices
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import (
    draw,
    mlp,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)

BATCHED = frozenset({"images", "labels"})


def on_machines(group: Group, mesh: Mesh, transport: Transport) -> MPIWorld:
    """The ranks, two on each of two machines."""
    from mpi4py import MPI

    from collectives.transport.mpi import MpiTransport

    hosts = ("first", "first", "second", "second")
    played = Group(MpiTransport(MPI.COMM_WORLD.Dup(), group.ranks, hosts))
    return MPIWorld(mesh, played, transport, goes_in_hierarchy=lambda kind, axes, bytes_: True)


def main(count: int, seed: int) -> None:
    """Print the worst error of each strategy, over both types and all ranks."""
    tensoropt.init(allow_copies=True)
    job = current()
    mesh = Mesh.of(job.group.size)
    world = MPIWorld(mesh, job.group, job.transport)
    worlds = [world, on_machines(job.group, mesh, job.transport) if mesh.size == 4 else world]
    random = np.random.default_rng(seed)
    errors: dict[str, list[float]] = {}
    for dtype, strategies in ((tf.float32, count // 2), (tf.float64, count)):
        if not strategies:
            continue
        script = mlp(dtype, 4, dropout=0.25)
        truth = train_plain(script)
        graph = script.imported()
        choices = strategy_choices(graph, mesh, BATCHED)
        for number in range(strategies):
            numbers = draw(graph, choices, mesh, random).numbers
            found = train_parallel(
                script,
                mesh,
                numbers,
                random_prices(number),
                BATCHED,
                worlds[number % 2],
                job.agreement,
                microbatches=1 + number % 2 * 2,
            )
            everyone = job.group.allgather_object(worst_error(found, truth))
            errors.setdefault(dtype.name, []).append(max(everyone))
    if job.group.rank == 0:
        print(json.dumps({"ranks": job.group.size, "errors": errors}))


main(int(sys.argv[1]), int(sys.argv[2]))
