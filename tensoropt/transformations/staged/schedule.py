"""Synchronous schedules of a pipeline: how long a step takes, and what is in flight.

With S stages and M microbatches, GPipe (Huang et al. 2019) runs all forward passes, then all
backward passes, and holds M microbatches; 1F1B (Narayanan et al. 2019, PipeDream's schedule with a
flush) runs a backward pass as soon as there is one, and stage s of S holds at most S - s. With
stages side by side there is one microbatch: the last stage begins and ends with what the others do
not wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tensoropt.errors import OptionError

__all__ = [
    "SCHEDULES",
    "Schedule",
    "SharedCores",
    "in_flight",
    "simulated_step",
    "step_nanoseconds",
]

Schedule = Literal["1f1b", "gpipe", "side_by_side"]
SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe")
"""Of pipelines, whose stages follow each other."""
_ROUNDING = 1e-3
"""Nanoseconds that are nothing."""


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


@dataclass(frozen=True, slots=True)
class SharedCores:
    """A machine whose devices are more processes than it has cores, and share these evenly.

    Where others wait a stage is faster, as their share of the cores is its own.

    Attributes:
        cores: how many.
        devices: of each stage, all on this machine.
    """

    cores: int
    devices: tuple[int, ...]

    def speed(self, running: Iterable[int]) -> float:
        """How much faster stages compute than when all of them do, if these do and others wait."""
        every, busy = sum(self.devices), sum(self.devices[stage] for stage in running)
        return max(1.0, every / max(self.cores, busy))


def simulated_step(
    schedule: Schedule,
    microbatches: int,
    forward: Sequence[int],
    backward: Sequence[int],
    once: Sequence[int],
    shared: SharedCores | None = None,
    beside: tuple[int, int] = (0, 0),
) -> int:
    """How long a step takes when every stage does its tasks in the schedule's order, each as soon
    as what it needs is there.

    Args:
        schedule, microbatches: see `in_flight`.
        forward, backward, once: nanoseconds of each stage's tasks; where devices share cores,
            while all of them compute.
        shared: these cores; by default each device has its own.
        beside: of the last stage's forward and backward pass what runs beside the other stages.
    """
    stages = range(len(forward))
    orders = [_order(schedule, stage, len(stages), microbatches) for stage in stages]
    takes = {"forward": forward, "backward": backward, "once": once}
    if schedule == "side_by_side":
        for kind, part in zip(("forward", "backward"), beside, strict=True):
            takes[kind] = [*takes[kind][:-1], takes[kind][-1] - part]
            takes[f"beside_{kind}"] = [part] * len(stages)
    left = [float(takes[orders[stage][0][0]][stage]) for stage in stages]
    done: set[tuple[str, int, int]] = set()
    place, now = [0] * len(stages), 0.0

    def can_run(stage: int) -> bool:
        kind, microbatch = orders[stage][place[stage]]
        return _needs(schedule, kind, stage, len(stages), microbatch) <= done

    while waiting := [stage for stage in stages if place[stage] < len(orders[stage])]:
        running = [stage for stage in waiting if can_run(stage)]
        speed = 1.0 if shared is None else shared.speed(running)
        first = min(running, key=lambda stage: left[stage])
        passed = left[first] / speed
        now += passed
        for stage in running:
            left[stage] = max(0.0, left[stage] - passed * speed)
            if stage == first or left[stage] < _ROUNDING:
                kind, microbatch = orders[stage][place[stage]]
                done.add((kind, stage, microbatch))
                place[stage] += 1
                if place[stage] < len(orders[stage]):
                    left[stage] = takes[orders[stage][place[stage]][0]][stage]
    return round(now)


def _order(schedule: Schedule, stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """One stage's tasks: forward passes until as many are in flight as may be, then in turns; last
    what comes once."""
    if schedule == "side_by_side":
        passes = ["forward", "backward", "once"]
        if stage == stages - 1:
            passes = ["beside_forward", "forward", "backward", "beside_backward", "once"]
        return [(kind, 0) for kind in passes]
    if schedule not in SCHEDULES:
        raise OptionError.one_of("a schedule", schedule, SCHEDULES)
    ahead = in_flight(schedule, stage, stages, microbatches)
    order = [("forward", number) for number in range(ahead)]
    for number in range(microbatches):
        order.append(("backward", number))
        if ahead + number < microbatches:
            order.append(("forward", ahead + number))
    return [*order, ("once", 0)]


def _needs(
    schedule: Schedule, kind: str, stage: int, stages: int, microbatch: int
) -> set[tuple[str, int, int]]:
    """The tasks of other stages that one waits for."""
    last = stages - 1
    if schedule == "side_by_side" and kind == "forward":
        return {("forward", other, 0) for other in range(last)} if stage == last else set()
    if schedule == "side_by_side" and kind == "backward":
        return {("backward", last, 0)} if stage < last else set()
    if kind == "forward" and stage:
        return {("forward", stage - 1, microbatch)}
    if kind == "backward" and stage < last:
        return {("backward", stage + 1, microbatch)}
    return set()
