"""Synchronous schedules of a pipeline: how long a step takes, and what is in flight.

With S stages and M microbatches, GPipe (Huang et al. 2019) runs all forward passes, then all
backward passes, and holds M microbatches; 1F1B (Narayanan et al. 2019, PipeDream's schedule with a
flush) runs a backward pass as soon as there is one, and stage s of S holds at most S - s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from tensoropt.errors import OptionError

__all__ = ["SCHEDULES", "Schedule", "in_flight", "simulated_step", "step_nanoseconds"]

Schedule = Literal["1f1b", "gpipe"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


def in_flight(schedule: Schedule, stage: int, stages: int, microbatches: int) -> int:
    """Microbatches that a stage holds at once; one where there is no other stage, as gradients are
    accumulated then.

    Args:
        schedule: which.
        stage: its number.
        stages: how many.
        microbatches: of a step.
    """
    return microbatches if schedule == "gpipe" and stages > 1 else min(stages - stage, microbatches)


def step_nanoseconds(
    schedule: Schedule,
    microbatches: int,
    forward: Sequence[int],
    backward: Sequence[int],
    once: Sequence[int],
) -> int:
    """The price of a step: filling and draining, the microbatches that follow, what comes once.

    One microbatch passes all stages and comes back; each other one follows after the longest
    stage: its forward and backward pass under 1F1B, the longest forward and the longest backward
    pass under GPipe (exact there: a flow shop of equal jobs, twice). Of what comes once per step
    the longest counts.
    """
    longest = (
        max(forward) + max(backward)
        if schedule == "gpipe"
        else max(f + b for f, b in zip(forward, backward, strict=True))
    )
    return sum(forward) + sum(backward) + (microbatches - 1) * longest + max(once)


def simulated_step(
    schedule: Schedule,
    microbatches: int,
    forward: Sequence[int],
    backward: Sequence[int],
    once: Sequence[int],
) -> int:
    """How long a step takes when every stage does its tasks in the schedule's order, each as soon
    as what it needs is there."""
    stages = len(forward)
    orders = [_order(schedule, stage, stages, microbatches) for stage in range(stages)]
    done: dict[tuple[str, int, int], int] = {}
    clock, place = [0] * stages, [0] * stages
    moving = True
    while moving:
        moving = False
        for stage in range(stages):
            while place[stage] < len(orders[stage]):
                kind, microbatch = orders[stage][place[stage]]
                if kind == "forward":
                    needed = ("forward", stage - 1, microbatch) if stage else None
                elif stage + 1 < stages:
                    needed = ("backward", stage + 1, microbatch)
                else:
                    needed = ("forward", stage, microbatch)
                if needed is not None and needed not in done:
                    break
                ready = 0 if needed is None else done[needed]
                takes = forward[stage] if kind == "forward" else backward[stage]
                clock[stage] = max(clock[stage], ready) + takes
                done[kind, stage, microbatch] = clock[stage]
                place[stage] += 1
                moving = True
    return max(end + last for end, last in zip(clock, once, strict=True))


def _order(schedule: Schedule, stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """One stage's tasks: forward passes until as many are in flight as may be, then in turns."""
    if schedule not in SCHEDULES:
        raise OptionError.one_of("a schedule", schedule, SCHEDULES)
    ahead = in_flight(schedule, stage, stages, microbatches)
    order = [("forward", number) for number in range(ahead)]
    for number in range(microbatches):
        order.append(("backward", number))
        if ahead + number < microbatches:
            order.append(("forward", ahead + number))
    return order
