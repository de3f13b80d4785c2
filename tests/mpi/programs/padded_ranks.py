"""Every rank trains on batches of other lengths, and compares with plain TensorFlow.

mpirun -np N python padded_ranks.py
"""

from __future__ import annotations

import json

import numpy as np

import tensoropt
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.job import current
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import executor_of, train_plain, worst_error
from tests.oracles.equality.engine import Trained
from tests.oracles.equality.padded import BATCHED, PADDED, data_parallel


def main() -> None:
    """Print the worst error over all ranks, and how many programs a rank has of each step."""
    tensoropt.init(allow_copies=True)
    job = current()
    mesh = Mesh.of(job.group.size)
    errors, programs = [], []
    for written in (make() for make in PADDED.values()):
        world = MPIWorld(mesh, job.group, job.transport)
        planned = data_parallel(written, mesh)
        executor = executor_of(
            written.graph, mesh, planned, lambda *_: 1, BATCHED, world, job.agreement
        )
        fetched = [written.loss], [written.train]
        losses = [executor.run(*fetched, fed)[written.loss] for fed in written.feeds]
        programs.append(sum(bool(each.shapes) for each in executor._programs.kept.emitted))
        found = Trained(np.array(losses), executor.run(written.variables, [], {}))
        executor.close()
        errors += job.group.allgather_object(worst_error(found, train_plain(written)))
    if job.group.rank == 0:
        print(json.dumps({"error": max(errors), "programs": programs}))


main()
