"""Executors of plans, for training or for a trial run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from collectives import Group
from tensoropt.cost.hierarchy import large_ones
from tensoropt.cost.model import ClusterCostModel
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.runtime.step_trace import StepTrace
from tensoropt.execution.stages.stage_ranks import (
    Pipeline,
    StageRanks,
    StageWorlds,
    mpi_stages,
    stages_in_one_process,
)
from tensoropt.execution.world.mpi_world import MPIWorld, Transport
from tensoropt.execution.world.resharding.resharder import GoesInHierarchy
from tensoropt.execution.world.world import SingleProcessWorld, World
from tensoropt.frontend.job.gpus import gpu_of
from tensoropt.frontend.job.hardware import rank_config
from tensoropt.frontend.job.job import Job
from tensoropt.graph.operator import Graph
from tensoropt.parallel.mesh import Mesh
from tensoropt.plan import Plan
from tensoropt.planner.prices.reshard_steps import ReshardSteps, step_planner

__all__ = [
    "adopt_config",
    "close",
    "early_values",
    "pipeline_on",
    "plan_executor",
    "ranks_in_order",
    "ranks_of",
    "replicated_executor",
    "session_config",
]


def plan_executor(
    job: Job,
    script: tf.Graph,
    plan: Plan,
    world: World,
    agreement: Agreement,
    trace: StepTrace | None = None,
    imported: Graph | None = None,
) -> Executor:
    """An executor of a script's graph under a plan, with variables of its own.

    Args:
        job: the job that it is part of.
        script: the graph.
        plan: a plan for that graph.
        world: the ranks; as many devices as the plan has.
        agreement: between the ranks of the world.
        trace: records when operators run.
        imported: the graph of the plan's step, if that step runs first.
    """
    options = StepOptions(
        frozenset(plan.batch_placeholders),
        job.seed,
        session_config(job),
        plan.batch_norm,
        tuple(plan.rewrites),
        plan.compression,
        check_feeds_every=job.check_feeds_every,
        room_bytes=_room_bytes(job, plan),
    )
    return Executor(script, _pipeline(job, plan, world), options, agreement, trace, imported)


def replicated_executor(job: Job, script: tf.Graph) -> Executor:
    """An executor that runs everything on every rank: no operator has a configuration."""
    mesh = Mesh.of(job.devices)
    world: World = SingleProcessWorld(mesh)
    if job.is_mpi:
        world = MPIWorld(mesh, job.group, job.transport)
    pipeline = Pipeline.of_mesh(world, {}, ReshardSteps(mesh, _price))
    options = StepOptions(frozenset(), job.seed, session_config(job))
    return Executor(script, pipeline, options, job.agreement)


def _price(kind: str, axes: Sequence[int], bytes_: int) -> int:
    """The price of a resharding step: its bytes. A replicated graph reshards almost nothing."""
    del kind, axes
    return 1 + bytes_


def _room_bytes(job: Job, plan: Plan) -> int:
    """The peak memory of a rank's step, an upper bound where it is estimated.

    0 if this process has other ranks, if the peak is unknown, and on GPUs, where the script says
    how much memory TensorFlow's allocator gets.
    """
    on_cpu = job.is_mpi and not tf.config.list_physical_devices("GPU")
    return int(plan.peak_margin * (plan.peak_bytes or 0)) if on_cpu else 0


def _pipeline(job: Job, plan: Plan, world: World) -> Pipeline:
    """The stages of a plan, on the ranks of a world: the first ranks have the first stage."""
    if not plan.stages:
        steps = step_planner(plan)
        return Pipeline.of_mesh(world, plan.configurations, steps, plan.microbatches)
    meshes = [stage.mesh for stage in plan.stages]
    if isinstance(world, MPIWorld):
        return pipeline_on(plan, mpi_stages(meshes, world.group, job.transport))
    return pipeline_on(plan, stages_in_one_process(meshes))


def pipeline_on(plan: Plan, worlds: StageWorlds) -> Pipeline:
    """The stages of a plan, on their worlds."""
    configurations, stages = plan.configurations, []
    for number, (stage, world) in enumerate(zip(plan.stages, worlds.stages, strict=True)):
        planned = {name: configurations[name] for name in stage.operators}
        stages.append(StageRanks(world, planned, step_planner(plan, number), stage.recompute))
    assert plan.schedule is not None, "a plan with stages has a schedule"
    return Pipeline(tuple(stages), plan.stage_of, plan.microbatches, plan.schedule, worlds.everyone)


def ranks_of(job: Job, plan: Plan) -> tuple[World | None, Group, Agreement]:
    """The world of a plan, the group of its ranks, and the agreement between them.

    A plan takes the first ranks of the job, stage by stage. On a rank that the plan does not use,
    the world is None, and the group and the agreement are the job's.
    """
    if not job.is_mpi:
        return SingleProcessWorld(plan.mesh), job.group, job.agreement
    transport: Transport = "host" if plan.stages else job.transport  # stages have their own
    goes_in_hierarchy: GoesInHierarchy = large_ones
    if not plan.stages:
        goes_in_hierarchy = ClusterCostModel(plan.cluster, plan.mesh).goes_in_hierarchy
    ranks = ranks_in_order(job.group.ranks, plan)
    if ranks == job.group.ranks:
        world = MPIWorld(plan.mesh, job.group, transport, goes_in_hierarchy=goes_in_hierarchy)
        return world, job.group, job.agreement
    if job.group.ranks[job.group.rank] not in ranks:
        return None, job.group, job.agreement
    group = job.group.subgroup(ranks)
    world = MPIWorld(plan.mesh, group, transport, goes_in_hierarchy=goes_in_hierarchy)
    return world, group, job.agreement.among(group)


def ranks_in_order(ranks: Sequence[int], plan: Plan) -> tuple[int, ...]:
    """The ranks that a plan uses, in the order of its devices: stage by stage.

    Devices are numbered like ranks at the launch, machine by machine. An earlier plan may have put
    the ranks in another order.

    Args:
        ranks: the ranks of the job, in any order.
        plan: the plan.
    """
    numbered = sorted(ranks)
    order: Sequence[int] = range(plan.devices)
    if plan.stages:
        order = [n for stage in range(len(plan.stages)) for n in plan.devices_of_stage(stage)]
    return tuple(numbered[number] for number in order)


def close(job: Job, *scripts: tf.Graph) -> None:
    """Free the executors of some graphs, with their variables. The graphs then have no plan.

    The job's current graph stays current.
    """
    for script in scripts:
        running = job.graphs.pop(script, None)
        if running is not None:
            running.executor.close()


def early_values(job: Job, script: tf.Graph) -> dict[str, Any]:
    """Values of the variables that runs before the first plan have assigned, by operator."""
    if job.plan is not None or job.executor is None or job.executor.script is not script:
        return {}
    return job.executor.variables.values()


def session_config(job: Job) -> tf.compat.v1.ConfigProto:
    """The configuration of the job's sessions.

    It is the script's. What the script leaves open is set under MPI such that ranks on one machine
    share its cores and GPUs.
    """
    config = tf.compat.v1.ConfigProto()
    if job.is_mpi:
        config.CopyFrom(rank_config(job.hardware))
        config.gpu_options.visible_device_list = gpu_of(job.group.local_rank())
    if job.config is not None:
        config.MergeFrom(job.config)
    return config


def adopt_config(job: Job, config: tf.compat.v1.ConfigProto) -> None:
    """Configure the job's sessions as a session of the script, from the first run on."""
    if config == job.config:
        return
    job.config = config
    if job.executor is None or job.executor.configure(session_config(job)) or job.group.rank:
        return
    sys.stderr.write(
        "tensoropt: the configuration of the session before the first run holds for all. Got "
        "another one later, which is not used\n"
    )
