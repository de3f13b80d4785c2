"""The order of a pipeline's passes: one total order that follows the schedule in each stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tensoropt.transformations.staged.schedule import Schedule, in_flight

__all__ = ["Pass", "passes"]


class Pass(NamedTuple):
    """The pass of a microbatch through a stage, forward or back."""

    forward: bool
    stage: int
    microbatch: int


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
