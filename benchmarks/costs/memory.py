"""Every rank: predict the peak memory of random strategies, and count their allocations.

mpirun -np N python -m benchmarks.costs.memory MODEL STRATEGIES RESULT.json
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from time import process_time

os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"  # an allocator that records; before TensorFlow

import tensoropt
from benchmarks.costs.allocations import changes, left_and_most
from benchmarks.costs.measure import strategies_of
from benchmarks.costs.models import job
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.peak.program_peak import program_peak
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.dry_run import ScriptStep, dry_run
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.hardware import rank_config
from tensoropt.frontend.job.job import current
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.from_graph import graph_problem


def main(name: str, count: int, result: Path) -> None:
    """Predict and measure the strategies of one model; rank 0 writes the result."""
    tensoropt.init()
    group, hardware = current().group, current().hardware
    step = job(name)
    cluster = hardware.cluster(group.size, load_cluster("this-machine"))
    mesh = cluster.mesh(group.size)
    cost = ClusterCostModel(cluster, mesh)
    steps = ReshardSteps(mesh, cost.collective_nanoseconds)
    problem = graph_problem(AnnotatedGraph.of(step.graph, mesh, cost, step.batched))
    options = StepOptions(step.batched, 1, rank_config(hardware))
    shapes = {name: value.shape for name, value in step.feeds.items()}
    script_step = ScriptStep(step.script, [step.train], shapes, options)
    rows = []
    for numbers in strategies_of(problem, count):
        planned = problem.configurations(numbers)
        started = process_time()
        predicted = program_peak(dry_run(script_step, mesh, planned, steps))
        seconds = process_time() - started
        pipeline = Pipeline.of_mesh(MPIWorld(mesh, group), planned, steps)
        executor = Executor(step.script, pipeline, options, current().agreement)

        def run(executor: Executor = executor) -> object:
            return executor.run([], [step.train], step.feeds)

        stays, _ = left_and_most(changes(run))
        left, most = left_and_most(changes(run))
        executor.close()
        del executor, run
        gc.collect()
        rows.append(
            {
                "predicted_peak_bytes": predicted.bytes,
                "predicted_at": predicted.at,
                "prediction_seconds": seconds,
                "peak_bytes": [stays + most],
                "stays_bytes": stays,
                "left_bytes": left,
            }
        )
    if group.rank == 0:
        result.write_text(json.dumps({"parameters": step.parameters, "strategies": rows}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
