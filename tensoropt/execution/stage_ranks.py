"""The ranks of a pipeline's stage, or of a job without a pipeline, and how they divide the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensoropt.execution.edge import PlanSteps
from tensoropt.execution.world import World
from tensoropt.parallel.configuration import Configuration
from tensoropt.pipeline.stages.schedule import Schedule

__all__ = ["Pipeline", "StageRanks"]


@dataclass(frozen=True, slots=True, eq=False)
class StageRanks:
    """What a stage runs on.

    Attributes:
        world: its ranks.
        configurations: of the script's operators, on its mesh.
        plan_steps: plans a resharding between its ranks.
    """

    world: World
    configurations: Mapping[str, Configuration]
    plan_steps: PlanSteps


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """The stages of a job.

    Attributes:
        stages: what each runs on.
        stage_of: of a training step's operators, those by microbatch where their passes are.
        microbatches: of a training step.
        schedule: the order of passes.
    """

    stages: tuple[StageRanks, ...]
    stage_of: Mapping[str, int]
    microbatches: int
    schedule: Schedule
