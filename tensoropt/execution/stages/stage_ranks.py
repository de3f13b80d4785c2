"""The ranks of a pipeline's stages, and their division of the operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from collectives import Group
from collectives.native.mail import mail_of
from tensoropt.errors import OptionError
from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.world.mpi_world import MPIWorld, Transport
from tensoropt.execution.world.world import SingleProcessWorld, World
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.transformations.staged.order_of_passes import Schedule

__all__ = [
    *("Pipeline", "StageRanks", "StageWorlds"),
    *("mpi_stages", "stages_in_one_process", "with_first_ranks"),
]


@dataclass(frozen=True, slots=True, eq=False)
class StageRanks:
    """The ranks of one stage, and their division of the operators.

    Attributes:
        world: the ranks. If other processes emit the stage, the world has no ranks here.
        configurations: a configuration on the stage's mesh for each operator of the script.
        plan_steps: plans a resharding between the ranks.
        recomputes: whether the stage keeps only the tensors that it receives, and runs its forward
            pass again before the backward pass.
    """

    world: World
    configurations: Mapping[str, Configuration]
    plan_steps: PlanSteps
    recomputes: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """The stages of a job; a mesh without stages is a pipeline of one stage.

    Attributes:
        stages: the stages in their order.
        stage_of: the stage of each operator of a training step, by name. All other operators are
            in the last stage.
        microbatches: the number of microbatches of a training step.
        schedule: the order of the stages' passes.
        everyone: all ranks in the order of stages, if processes emit different stages; None if each
            process emits all stages.
        made: the number of microbatches that are emitted, see `BatchCut`; None for all.
    """

    stages: tuple[StageRanks, ...]
    stage_of: Mapping[str, int] = field(default_factory=dict)
    microbatches: int = 1
    schedule: Schedule = "1f1b"
    everyone: MPIWorld | None = None
    made: int | None = None

    @property
    def here(self) -> int:
        """The number of the first stage that this process emits."""
        return next(number for number, stage in enumerate(self.stages) if stage.world.ranks)

    @property
    def last(self) -> int:
        """The number of the last stage."""
        return len(self.stages) - 1

    @property
    def unplanned(self) -> Pipeline:
        """The same ranks, on which no operator has a configuration, so that all are whole."""
        stages = tuple(replace(stage, configurations={}) for stage in self.stages)
        return replace(self, stages=stages)

    @classmethod
    def of_mesh(
        cls,
        world: World,
        configurations: Mapping[str, Configuration],
        plan_steps: PlanSteps,
        microbatches: int = 1,
    ) -> Pipeline:
        """Return the ranks of a mesh as a pipeline of one stage."""
        return cls((StageRanks(world, configurations, plan_steps),), microbatches=microbatches)


@dataclass(frozen=True, slots=True, eq=False)
class StageWorlds:
    """The worlds of a pipeline.

    Attributes:
        stages: the world of each stage, in order.
        everyone: see `Pipeline`.
    """

    stages: tuple[World, ...]
    everyone: MPIWorld | None


def stages_in_one_process(meshes: Sequence[Mesh]) -> StageWorlds:
    """Return worlds with all ranks of all stages in this process."""
    return StageWorlds(
        tuple(SingleProcessWorld(mesh, first) for mesh, first in with_first_ranks(meshes)), None
    )


def mpi_stages(meshes: Sequence[Mesh], group: Group, transport: Transport = "mpi") -> StageWorlds:
    """Return worlds with one rank per process; the first ranks are in the first stage.

    All ranks call this at the same point.

    Args:
        meshes: the mesh of each stage.
        group: all ranks, as many as the meshes have devices.
        transport: see `MPIWorld`.

    Raises:
        TransportError: if MPI allows calls of only one thread at a time.
        OptionError: if there are more or fewer ranks than devices, or the transport is Horovod's,
            which has no groups of ranks.
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
    for mesh, first in with_first_ranks(meshes):
        if first <= group.rank < first + mesh.size:
            of_stage = group.subgroup(group.ranks[first : first + mesh.size])
            stages.append(MPIWorld(mesh, of_stage, transport, first, mail=mail))
        else:
            stages.append(World(mesh, (), first))
    everyone = MPIWorld(Mesh.of(group.size), group, "host", mail=mail)
    return StageWorlds(tuple(stages), everyone)


def with_first_ranks(meshes: Sequence[Mesh]) -> list[tuple[Mesh, int]]:
    """Return each mesh with the number of its first rank."""
    return [(mesh, sum(each.size for each in meshes[:n])) for n, mesh in enumerate(meshes)]
