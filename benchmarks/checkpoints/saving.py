"""Saves one checkpoint after another until the job is killed.

    mpirun -np N python -m benchmarks.checkpoints.saving FOLDER overwritten|numbered

The job continues from the checkpoint in the folder. Every variable holds the number of the save.
Messages: ``rank R PID``, ``found NUMBER``, ``begun NUMBER`` and ``done NUMBER``.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import tensoropt as tf
from benchmarks.checkpoints.jobs import say
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.job import Running, current
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import executor_of, random_prices

__all__: list[str] = []

_SHAPES = [[256, 256], [64], [], [16, 4096]]


def main(folder: Path, names: str) -> None:
    """Save."""
    tf.init()
    job = current()
    say(folder, f"rank {job.group.rank} {os.getpid()}")
    zeros = tf.zeros_initializer()
    variables = [tf.get_variable(f"v{n}", s, initializer=zeros) for n, s in enumerate(_SHAPES)]
    more = tf.group(*(tf.assign_add(variable, tf.ones_like(variable)) for variable in variables))
    saver = tf.train.Saver(max_to_keep=2)
    mesh = Mesh.of(job.group.size)
    splits = (tuple(range(len(mesh.axes))), ())
    graph = tf.get_default_graph()
    executor = executor_of(
        graph,
        mesh,
        {variables[n].op.name: Configuration(splits) for n in (0, 3)},
        random_prices(0),
        world=MPIWorld(mesh, job.group),
        agreement=job.agreement,
    )
    job.graphs[graph] = Running(executor)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        last = tf.train.latest_checkpoint(str(folder))
        if last is not None:
            saver.restore(session, last)
        first = int(session.run(variables[2]))
        if job.group.rank == 0:
            say(folder, f"found {first}")
        for number in itertools.count(first + 1):
            session.run(more)
            if job.group.rank == 0:
                say(folder, f"begun {number}")
            saver.save(session, str(folder / "model"), number if names == "numbered" else None)
            if job.group.rank == 0:
                say(folder, f"done {number}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
