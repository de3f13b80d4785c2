"""Pipelines, and what is to become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.errors import OptionError
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.stages.points import Profile
from tensoropt.transformations.staged.schedule import (
    Part,
    Schedule,
    SharedCores,
    simulated_side_by_side,
    simulated_step,
    step_nanoseconds,
)

__all__ = ["Pipeline", "PipelineProblem", "Stage"]


@dataclass(frozen=True, slots=True)
class PipelineProblem:
    """Blocks to be grouped into stages, and the devices for them.

    Attributes:
        blocks: how many, in topological order.
        profile: what consecutive ones cost as a stage.
        links: of the machines.
        machines: how many, alike.
        batch: examples of a step.
        memory_limit: bytes of a device.
        time_limit: nanoseconds of a step, below which a pipeline is wanted; None for no limit.
    """

    blocks: int
    profile: Profile
    links: Links
    machines: int
    batch: int
    memory_limit: int
    time_limit: int | None = None

    def __post_init__(self) -> None:
        if min(self.blocks, self.machines, self.batch) < 1:
            raise OptionError(
                "a pipeline has at least one block, machine and example. Got "
                f"{self.blocks}, {self.machines} and {self.batch}."
            )

    @property
    def devices(self) -> int:
        """Of all machines."""
        return self.machines * self.links.machine


@dataclass(frozen=True, slots=True)
class Stage:
    """Consecutive blocks on devices side by side.

    Attributes:
        first, last: numbers of blocks.
        devices: of each copy of the pipeline.
        point: of the stage's `StagePoints`.
        recompute: whether only inputs stay until the backward pass.
        forward, backward, once: nanoseconds, with sending and recomputing.
        memory: bytes of a device.
    """

    first: int
    last: int
    devices: int
    point: int
    recompute: bool
    forward: int
    backward: int
    once: int
    memory: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A model's stages, and how a step runs through them.

    Attributes:
        stages: in order, on devices in order.
        copies: of the whole pipeline, each with its share of the batch.
        microbatches: of the share.
        schedule: of their passes.
        time: nanoseconds of a step, `step_nanoseconds`.
        memory: bytes of the device that holds most.
        parts: of each stage, where stages run side by side; else none.
    """

    stages: tuple[Stage, ...]
    copies: int
    microbatches: int
    schedule: Schedule
    time: int
    memory: int
    parts: tuple[tuple[Part, ...], ...] = ()

    @classmethod
    def of(
        cls, stages: Sequence[Stage], copies: int, microbatches: int, schedule: Schedule
    ) -> Pipeline:
        """With the time and memory that follow."""
        times = _times(stages)
        time = step_nanoseconds(schedule, microbatches, *times)
        memory = max(stage.memory for stage in stages)
        return cls(tuple(stages), copies, microbatches, schedule, time, memory)

    @classmethod
    def side_by_side(cls, stages: Sequence[Stage], parts: Sequence[Sequence[Part]]) -> Pipeline:
        """Stages that run at once, as far as their parts need nothing of each other.

        Args:
            stages: each reads earlier ones alone.
            parts: of each stage.
        """
        every = tuple(tuple(own) for own in parts)
        time = simulated_side_by_side(every, [stage.once for stage in stages])
        memory = max(stage.memory for stage in stages)
        return cls(tuple(stages), 1, 1, "side_by_side", time, memory, every)

    def simulated_time(self, shared: SharedCores | None = None) -> int:
        """Nanoseconds of a step, task by task.

        Args:
            shared: the machine, where devices are processes that share its cores; by default each
                device has its own.
        """
        forward, backward, once = _times(self.stages)
        if self.schedule == "side_by_side":
            return simulated_side_by_side(self.parts, once, shared)
        return simulated_step(self.schedule, self.microbatches, forward, backward, once, shared)

    def __str__(self) -> str:
        parts = " ".join(
            f"{stage.first}-{stage.last}x{stage.devices}{'r' if stage.recompute else ''}"
            for stage in self.stages
        )
        return f"[{parts}] x{self.copies}, {self.microbatches} microbatches, {self.schedule}"


def _times(stages: Sequence[Stage]) -> tuple[list[int], list[int], list[int]]:
    return (
        [stage.forward for stage in stages],
        [stage.backward for stage in stages],
        [stage.once for stage in stages],
    )
