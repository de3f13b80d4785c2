"""The memory that a rank needs for a checkpoint of a model that is split over the ranks.

    mpirun -np N python -m benchmarks.checkpoints.memory FOLDER ACT MIB

ACT is ``save`` or ``restore``. With ``_whole`` appended, the script's own operators save or restore
whole values, as before checkpoints had slices. ``restore_over`` restores over variables that have
values. The first rank prints as JSON, in MiB, the largest peak of any rank above its resident
memory before, and the size of the rank's slices.
"""

from __future__ import annotations

import json
import sys

import tensoropt as tf
from benchmarks.peak_memory import peak_mib, reset_peak, resident_mib
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.job import Running, current
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import executor_of, random_prices

__all__: list[str] = []

_COLUMNS = 4096
_VARIABLES = 16


def main(folder: str, act: str, mib: int) -> None:
    """Print the figures."""
    tf.init()
    job = current()
    rows = mib * 2**20 // (_VARIABLES * 4 * _COLUMNS)
    ones = tf.ones_initializer()
    variables = [tf.get_variable(f"v{n}", [rows, _COLUMNS], initializer=ones) for n in range(16)]
    initializer = tf.global_variables_initializer()
    tiny = tf.get_variable("tiny", [], initializer=ones)
    saver, other = tf.train.Saver(variables), tf.train.Saver([tiny])
    mesh = Mesh.of(job.group.size)
    axes = tuple(range(len(mesh.axes)))
    graph = tf.get_default_graph()
    executor = executor_of(
        graph,
        mesh,
        {variable.op.name: Configuration((axes, ())) for variable in variables},
        random_prices(0),
        world=MPIWorld(mesh, job.group),
        agreement=job.agreement,
    )
    job.graphs[graph] = Running(executor)
    with tf.Session() as session:
        other.restore(session, other.save(session, f"{folder}/tiny"))
        if act.startswith("save") or act == "restore_over":
            session.run(initializer)
        before = resident_mib()
        reset_peak()
        operators = saver.saver_def
        feed = {operators.filename_tensor_name: f"{folder}/model"}
        if act == "save":
            saver.save(session, f"{folder}/model", write_meta_graph=False)
        elif act == "save_whole":
            session.run(operators.save_tensor_name, feed)
        elif act == "restore_whole":
            session.run(operators.restore_op_name, feed)
        else:
            saver.restore(session, f"{folder}/model")
        above = max(job.group.allgather_object(peak_mib() - before))
    if job.group.rank == 0:
        held = 0 if act.startswith("save") else mib / job.group.size
        print(json.dumps({"above": above, "slices": held}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
