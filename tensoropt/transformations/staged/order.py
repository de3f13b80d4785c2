"""The order of a pipeline's passes: one total order, whose part for a stage is the schedule's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tensoropt.transformations.staged.schedule import Schedule, in_flight

__all__ = ["Pass", "passes"]


class Pass(NamedTuple):
    """A microbatch's way through a stage, forward or back."""

    forward: bool
    stage: int
    microbatch: int


def passes(schedule: Schedule, stages: int, microbatches: int) -> tuple[Pass, ...]:
    """All passes of a step, each after those that it needs.

    Every stage has its own in the schedule's order; stages take turns, as they would if all passes
    took as long.
    """
    waiting = [list(_of_stage(schedule, s, stages, microbatches)) for s in range(stages)]
    done: set[Pass] = set()
    found: list[Pass] = []
    while any(waiting):
        ready = [own[0] for own in waiting if own and _needs(own[0], stages) <= done]
        for each in ready:
            waiting[each.stage].pop(0)
        found += ready
        done.update(ready)
    return tuple(found)


def _of_stage(schedule: Schedule, stage: int, stages: int, microbatches: int) -> Iterator[Pass]:
    held = in_flight(schedule, stage, stages, microbatches)
    for number in range(microbatches + held):
        if number < microbatches:
            yield Pass(True, stage, number)
        if number >= held - 1 and number - held + 1 < microbatches:
            yield Pass(False, stage, number - held + 1)


def _needs(each: Pass, stages: int) -> set[Pass]:
    if each.forward:
        return {Pass(True, each.stage - 1, each.microbatch)} if each.stage else set()
    if each.stage == stages - 1:
        return {Pass(True, each.stage, each.microbatch)}
    return {Pass(False, each.stage + 1, each.microbatch)}
