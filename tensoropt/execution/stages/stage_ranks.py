"""The ranks of a pipeline's stages, or of a job without one, and how they divide the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collectives import Group
from collectives.native.mail import mail_of
from tensoropt.errors import OptionError
from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.world.world import MPIWorld, SingleProcessWorld, Transport, World
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.transformations.staged.schedule import Schedule

__all__ = ["Pipeline", "StageRanks", "StageWorlds", "mpi_stages", "stages_in_one_process"]


@dataclass(frozen=True, slots=True, eq=False)
class StageRanks:
    """What a stage runs on.

    Attributes:
        world: its ranks; without any in this process where another one emits it.
        configurations: of the script's operators, on its mesh.
        plan_steps: plans a resharding between its ranks.
        recomputes: whether it keeps what it receives, and runs its forward pass again.
    """

    world: World
    configurations: Mapping[str, Configuration]
    plan_steps: PlanSteps
    recomputes: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """The stages of a job.

    Attributes:
        stages: what each runs on.
        stage_of: of a training step's operators, those by microbatch where their passes are.
        microbatches: of a training step.
        schedule: the order of passes.
        everyone: all ranks, in the order of stages, where each process emits one stage's rank;
            None where one process emits all.
    """

    stages: tuple[StageRanks, ...]
    stage_of: Mapping[str, int]
    microbatches: int
    schedule: Schedule
    everyone: MPIWorld | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StageWorlds:
    """The worlds of a pipeline.

    Attributes:
        stages: of each stage, in order.
        everyone: see `Pipeline`.
    """

    stages: tuple[World, ...]
    everyone: MPIWorld | None


def stages_in_one_process(meshes: Sequence[Mesh]) -> StageWorlds:
    """All ranks of all stages in this process."""
    return StageWorlds(
        tuple(SingleProcessWorld(mesh, first) for mesh, first in _firsts(meshes)), None
    )


def mpi_stages(meshes: Sequence[Mesh], group: Group, transport: Transport = "mpi") -> StageWorlds:
    """One rank per process, the first ones in the first stage. Every rank calls, at the same point.

    Args:
        meshes: of the stages.
        group: as many ranks as these have devices.
        transport: see `MPIWorld`.

    Raises:
        TransportError: if MPI takes calls of one thread at a time.
        OptionError: if ranks have a transport that knows all ranks alone, or are not so many.
    """
    ranks = sum(mesh.size for mesh in meshes)
    if ranks != group.size:
        raise OptionError(
            f"a pipeline has a rank for each device of its stages. Got {group.size} ranks for "
            f"{ranks} devices."
        )
    if transport == "horovod":
        raise OptionError(
            "the stages of a pipeline run their collectives through MPI. Got the transport "
            "'horovod'; take 'mpi'."
        )
    group.check_messages()
    mail = mail_of(group) if transport == "mpi" else None
    stages: list[World] = []
    for mesh, first in _firsts(meshes):
        if first <= group.rank < first + mesh.size:
            own = group.subgroup(group.ranks[first : first + mesh.size])
            stages.append(MPIWorld(mesh, own, transport, first, mail=mail))
        else:
            stages.append(World(mesh, (), first))
    everyone = MPIWorld(Mesh.of(group.size), group, "host", mail=mail)
    return StageWorlds(tuple(stages), everyone)


def _firsts(meshes: Sequence[Mesh]) -> list[tuple[Mesh, int]]:
    """Each mesh with the number of its first rank."""
    return [(mesh, sum(each.size for each in meshes[:n])) for n, mesh in enumerate(meshes)]
