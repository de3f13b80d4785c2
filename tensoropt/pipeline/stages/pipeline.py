"""Pipelines, their stages, and the problem of finding them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tensoropt.converters import Natural
from tensoropt.errors import OptionError
from tensoropt.pipeline.links import Links
from tensoropt.pipeline.stages.points import Profile
from tensoropt.pipeline.stages.unlike_devices import StageKind, UnlikeDevices
from tensoropt.transformations.staged.devices import devices_of_stage
from tensoropt.transformations.staged.order_of_passes import Schedule
from tensoropt.transformations.staged.simulated_time import (
    SharedCores,
    StagePart,
    simulated_side_by_side,
    simulated_step,
    step_nanoseconds,
)

__all__ = ["Pipeline", "PipelineProblem", "Stage"]


@dataclass(frozen=True, slots=True)
class PipelineProblem:
    """Blocks to be grouped into stages, and the devices that run them.

    Attributes:
        blocks: the number of blocks, which are in topological order.
        profile: gives the cost of consecutive blocks as a stage, on the slowest devices if they
            differ.
        links: the links of a machine and between machines.
        machines: the number of machines, which are equal.
        batch: the examples of a step.
        memory_limit: the most bytes of a device. If devices differ, it is that of the device with
            the least memory, and the memory of stages on others counts in proportion: half of a
            limit twice as high is half of this one.
        time_limit: the most nanoseconds of a step; None for no limit.
        unlike: the devices, if they differ in speed or memory; None if they are alike.
        faster: the profiles of the speeds above the least.
    """

    blocks: int
    profile: Profile
    links: Links
    machines: int
    batch: int
    memory_limit: int
    time_limit: int | None = None
    unlike: UnlikeDevices | None = None
    faster: Mapping[float, Profile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min(self.blocks, self.machines, self.batch) < 1:
            raise OptionError(
                "a pipeline has at least one block, machine and example. Got "
                f"{self.blocks}, {self.machines} and {self.batch}."
            )

    @property
    def devices(self) -> int:
        """The devices of all machines."""
        return self.machines * self.links.machine

    def profile_of(self, kind: StageKind | None) -> Profile:
        """Return the profile of stages on devices of a kind; None if all devices are alike."""
        return self.profile if kind is None else self.faster.get(kind.speed, self.profile)

    def counted_bytes(self, memory: int, kind: StageKind | None) -> int:
        """Return a stage's memory as ``memory_limit`` counts it, from its bytes of a device."""
        if kind is None or self.unlike is None:
            return memory
        return -(-memory * self.unlike.least_limit // kind.limit)


@dataclass(frozen=True, slots=True)
class Stage:
    """Consecutive blocks on neighbouring devices.

    Attributes:
        first, last: the numbers of the first and the last block.
        devices: the devices of the stage in each copy of the pipeline.
        point: the number of its point in the stage's `StagePoints`.
        recompute: whether the stage keeps its inputs alone, and recomputes in the backward pass.
        forward, backward: nanoseconds of a microbatch, with sending and recomputation.
        once: nanoseconds once per step.
        memory: the bytes of a device.
    """

    first: Natural
    last: Natural
    devices: Natural
    point: Natural
    recompute: bool
    forward: Natural
    backward: Natural
    once: Natural
    memory: Natural


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages of a model, and how a step runs through them.

    Attributes:
        stages: in the order of their blocks, which is that of their devices.
        copies: the copies of the whole pipeline, each with an equal share of the batch.
        microbatches: the microbatches of a copy.
        schedule: the order of the microbatches' passes.
        time: nanoseconds of a step, by `step_nanoseconds`.
        memory: the bytes of the device that holds most, as `PipelineProblem.memory_limit` counts.
        parts: for stages that run side by side, the parts of each stage; else empty.
        order: the devices that the stages take, one copy after the other; empty if they take them
            in the order of their numbers.
    """

    stages: tuple[Stage, ...]
    copies: int
    microbatches: int
    schedule: Schedule
    time: int
    memory: int
    parts: tuple[tuple[StagePart, ...], ...] = ()
    order: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        stages: Sequence[Stage],
        copies: int,
        microbatches: int,
        schedule: Schedule,
        memory: int | None = None,
        order: tuple[int, ...] = (),
    ) -> Pipeline:
        """Return the pipeline of some stages, with its time.

        The memory is that of the largest stage, if it is not given.
        """
        time = step_nanoseconds(schedule, microbatches, *_times(stages))
        if memory is None:
            memory = max(stage.memory for stage in stages)
        return cls(tuple(stages), copies, microbatches, schedule, time, memory, order=order)

    def devices_of(self, number: int) -> tuple[int, ...]:
        """Return the devices of a stage in all copies."""
        sizes = [stage.devices for stage in self.stages]
        return devices_of_stage(number, sizes, self.copies, self.order)

    @classmethod
    def side_by_side(
        cls, stages: Sequence[Stage], parts: Sequence[Sequence[StagePart]]
    ) -> Pipeline:
        """Return the pipeline of stages whose parts run at the same time where they can.

        Args:
            stages: each reads from earlier stages alone.
            parts: the parts of each stage.
        """
        all_parts = tuple(tuple(stage_parts) for stage_parts in parts)
        time = simulated_side_by_side(all_parts, [stage.once for stage in stages])
        memory = max(stage.memory for stage in stages)
        return cls(tuple(stages), 1, 1, "side_by_side", time, memory, all_parts)

    def simulated_time(self, shared: SharedCores | None = None) -> int:
        """Return the nanoseconds of a step from a simulation of every pass.

        Args:
            shared: the cores of a machine whose devices are processes that share them. By default
                each device has cores of its own.
        """
        forward, backward, once = _times(self.stages)
        if self.schedule == "side_by_side":
            return simulated_side_by_side(self.parts, once, shared)
        return simulated_step(self.schedule, self.microbatches, forward, backward, once, shared)

    def __str__(self) -> str:
        stages = " ".join(
            f"{stage.first}-{stage.last}x{stage.devices}{'r' if stage.recompute else ''}"
            for stage in self.stages
        )
        return f"[{stages}] x{self.copies}, {self.microbatches} microbatches, {self.schedule}"


def _times(stages: Sequence[Stage]) -> tuple[list[int], list[int], list[int]]:
    """Return the forward, backward and once-per-step times of stages."""
    return (
        [stage.forward for stage in stages],
        [stage.backward for stage in stages],
        [stage.once for stage in stages],
    )
