"""The order of a pipeline's passes: one total order that follows the schedule in each stage.

With S stages and M microbatches, GPipe (Huang et al. 2019) runs all forward passes, then all
backward passes, and holds M microbatches. 1F1B (Narayanan et al. 2019, PipeDream's schedule with a
flush) runs a backward pass as soon as possible, and stage s of S holds at most S - s. With
stages side by side, a step has one microbatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

__all__ = ["SCHEDULES", "Pass", "Schedule", "in_flight", "passes", "until_it_repeats"]

Schedule = Literal["1f1b", "gpipe", "side_by_side"]
SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe")
"""Schedules of pipelines, whose stages follow each other."""


class Pass(NamedTuple):
    """The pass of a microbatch through a stage, forward or back."""

    forward: bool
    stage: int
    microbatch: int


def in_flight(schedule: Schedule, stage: int, stages: int, microbatches: int) -> int:
    """The number of microbatches that a stage holds at once.

    With a single stage it is one: a microbatch's gradients are added up before the next one starts.

    Args:
        schedule: the schedule.
        stage: number of the stage.
        stages: number of stages.
        microbatches: number of microbatches of a step.
    """
    return microbatches if schedule == "gpipe" and stages > 1 else min(stages - stage, microbatches)


def until_it_repeats(schedule: Schedule, stage: int, stages: int, microbatches: int) -> int:
    """The number of microbatches after which a stage takes no more memory.

    A stage repeats itself once it has all microbatches in flight and sums of their gradients.

    Args:
        schedule, stage, stages, microbatches: see `in_flight`.
    """
    return min(microbatches, in_flight(schedule, stage, stages, microbatches) + 2)


def passes(schedule: Schedule, stages: int, microbatches: int) -> tuple[Pass, ...]:
    """All passes of a step, each after the passes that it needs.

    The passes of a stage are in the schedule's order. Stages take turns, as they would if all
    passes took the same time.
    """
    waiting = [list(_of_stage(schedule, s, stages, microbatches)) for s in range(stages)]
    done: set[Pass] = set()
    order: list[Pass] = []
    while any(waiting):
        ready = [queue[0] for queue in waiting if queue and _needs(queue[0], stages) <= done]
        for stage_pass in ready:
            waiting[stage_pass.stage].pop(0)
        order += ready
        done.update(ready)
    return tuple(order)


def _of_stage(schedule: Schedule, stage: int, stages: int, microbatches: int) -> Iterator[Pass]:
    """The passes of one stage, in the schedule's order."""
    held = in_flight(schedule, stage, stages, microbatches)
    for number in range(microbatches + held):
        if number < microbatches:
            yield Pass(True, stage, number)
        if number >= held - 1 and number - held + 1 < microbatches:
            yield Pass(False, stage, number - held + 1)


def _needs(stage_pass: Pass, stages: int) -> set[Pass]:
    """The pass that has to be done before a pass, if there is one."""
    if stage_pass.forward:
        return (
            {Pass(True, stage_pass.stage - 1, stage_pass.microbatch)} if stage_pass.stage else set()
        )
    if stage_pass.stage == stages - 1:
        return {Pass(True, stage_pass.stage, stage_pass.microbatch)}
    return {Pass(False, stage_pass.stage + 1, stage_pass.microbatch)}
