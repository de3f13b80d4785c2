"""Peak memory of random strategies, predicted and measured, and the savings of several variants.

    mpirun -np DEVICES python -m tests.oracles.equality.peaks MODEL DEVICES SEED '' NUMBER...

Each strategy has several variants with the same splits: variables whole or in pieces, and all
copies kept for the backward pass or fewer, where the search offers this. The peak of each variant
is predicted like that of a plan, from the first rank's program, kernel by kernel. The variant is
trained for two steps, while every allocation of TensorFlow and of collectives is recorded. Its loss
is compared with plain TensorFlow's. The program prints a line of JSON for each strategy.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import zlib
from collections.abc import Mapping
from typing import Any

# This allocator records its allocations. TensorFlow reads the variable when it is imported.
os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"

import numpy as np
import tensorflow as tf

import tensoropt
from benchmarks.costs.allocations import changes, left_and_most
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.peak.program_peak import program_peak
from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.dry_run import ScriptStep, dry_run
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.hardware import rank_config
from tensoropt.frontend.job.job import current
from tensoropt.graph.from_tensorflow import backward_reads
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tensoropt.problem.edges.tensor_reuse import SavedTensors, Space
from tests.oracles.equality.draws import with_variables
from tests.oracles.equality.engine import (
    Script,
    choices_of,
    draw,
    planned_of,
)
from tests.oracles.equality.scripts import large_script
from tests.oracles.equality.variants import VARIANTS

__all__ = ["main"]

STEPS = 2


def main(model: str, seed: int, numbers: list[int]) -> None:
    """Print a line for each strategy with rank 0's peaks and the worst error of all ranks."""
    tensoropt.init(allow_copies=True)
    group, hardware = current().group, current().hardware
    cluster = hardware.cluster(group.size, load_cluster("this-machine"))
    mesh = cluster.mesh(group.size)
    steps = ReshardSteps(mesh, ClusterCostModel(cluster, mesh).collective_nanoseconds)
    script = large_script(model, STEPS)
    graph, batched = script.imported(), frozenset(script.feeds[0])
    choices = choices_of(script, mesh, batched)
    offered = offered_of(script, mesh)
    rows: list[dict[str, Any]] = []
    for number in numbers:
        random = np.random.default_rng([seed, zlib.crc32(model.encode()), group.size, number])
        drawn = draw(graph, choices, mesh, random).numbers
        planned = {}
        for name, (sharded, ways) in VARIANTS.items():
            place = np.random.default_rng([seed, number])
            chosen = with_variables(graph, choices, drawn, sharded, place)
            kept = {
                operator: next((way for way in ways if way in some), "both")
                for operator, some in offered.items()
            }
            planned[name] = planned_of(script, mesh, chosen, batched, kept)
        predicted = predictions(script, mesh, planned, steps)
        found: dict[str, dict[str, Any]] = {}
        for name, configurations in planned.items():
            measured, loss = trained(script, mesh, configurations, steps)
            found[name] = {"predicted": predicted[name], "measured": measured, "loss": loss}
        rows.append({"model": model, "devices": group.size, "number": number, "variants": found})
    truth = _plain_loss(script)
    for row in rows:
        for variant in row["variants"].values():
            error = abs(variant.pop("loss") / truth - 1)
            variant["error"] = max(group.allgather_object(error))
        if group.rank == 0:
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()


def offered_of(script: Script, mesh: Mesh) -> Mapping[str, tuple[str, ...]]:
    """For each operator the copies of its outputs that the search may keep."""
    graph = script.imported()
    derivations = {operator.name: derivation_of(operator) for operator in graph}
    space = Space(reuse=True, recompute=True)
    reads = backward_reads(script.graph, graph)
    return SavedTensors(graph, derivations, reads, space, mesh.size).kept_choices


def predictions(
    script: Script,
    mesh: Mesh,
    planned: Mapping[str, Mapping[str, Configuration]],
    steps: PlanSteps,
) -> dict[str, int]:
    """The peaks, in bytes, of a step of the first rank under several strategies.

    The ranks share the work; a rank can predict a strategy alone.
    """
    group, config = current().group, rank_config(current().hardware)
    batched = frozenset(script.feeds[0])
    options = StepOptions(batched, 1, config)
    step = ScriptStep(script.graph, [script.train], script.shapes, options)
    mine = list(planned)[group.rank :: group.size]
    found = {name: program_peak(dry_run(step, mesh, planned[name], steps)).bytes for name in mine}
    return {
        name: peak for of_rank in group.allgather_object(found) for name, peak in of_rank.items()
    }


def trained(
    script: Script, mesh: Mesh, planned: Mapping[str, Configuration], steps: PlanSteps
) -> tuple[int, float]:
    """The allocated peak of the last step in bytes, and the loss of the first batch after it."""
    job = current()
    pipeline = Pipeline.of_mesh(MPIWorld(mesh, job.group), planned, steps)
    options = StepOptions(frozenset(script.feeds[0]), 1, rank_config(job.hardware))
    executor = Executor(script.graph, pipeline, options, job.agreement)
    stays, most = 0, 0
    for feeds in script.feeds:

        def run(executor: Executor = executor, feeds: Mapping[str, Any] = feeds) -> object:
            return executor.run([], [script.train], feeds)

        left, above = left_and_most(changes(run))
        stays, most = stays + left, stays + above
    loss = float(executor.run([script.loss], [], script.feeds[0])[script.loss])
    executor.close()
    del executor, run
    gc.collect()
    return most, loss


def _plain_loss(script: Script) -> float:
    """The loss of the first batch after training with plain TensorFlow on one device.

    It is called last, because kernels of sessions after plain TensorFlow's session ran in another
    order, with peaks up to 12 % lower.
    """
    with script.graph.as_default(), tf.compat.v1.Session(graph=script.graph) as session:
        session.run([variable.initializer for variable in tf.compat.v1.global_variables()])
        feeds = [{f"{name}:0": v for name, v in values.items()} for values in script.feeds]
        for feed in feeds:
            session.run(script.train, feed)
        return float(session.run(script.loss, feeds[0]))


if __name__ == "__main__":
    _model, _, _seed, _, *_numbers = sys.argv[1:]
    main(_model, int(_seed), [int(number) for number in _numbers])
