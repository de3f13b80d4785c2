"""Synchronous schedules of a pipeline: how long a step takes, and what is in flight.

With S stages and M microbatches, GPipe (Huang et al. 2019) runs all forward passes, then all
backward passes, and holds M microbatches; 1F1B (Narayanan et al. 2019, PipeDream's schedule with a
flush) runs a backward pass as soon as there is one, and stage s of S holds at most S - s. With
stages side by side there is one microbatch: a stage is parts, each of which waits for the parts of
other stages that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tensoropt.errors import OptionError

__all__ = [
    "SCHEDULES",
    "Part",
    "Schedule",
    "SharedCores",
    "in_flight",
    "simulated_side_by_side",
    "simulated_step",
    "step_nanoseconds",
]

Schedule = Literal["1f1b", "gpipe", "side_by_side"]
SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe")
"""Of pipelines, whose stages follow each other."""
_Task = tuple[str, int, int]
"""A kind, a stage, and the number of a microbatch or part."""
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


@dataclass(frozen=True, slots=True)
class Part:
    """Operators of a stage that runs beside others, one after the other.

    Attributes:
        forward, backward: nanoseconds of its passes, with sending.
        needs: the parts of other stages that it reads, each by stage and number.
    """

    forward: int
    backward: int
    needs: tuple[tuple[int, int], ...] = ()


def simulated_step(
    schedule: Schedule,
    microbatches: int,
    forward: Sequence[int],
    backward: Sequence[int],
    once: Sequence[int],
    shared: SharedCores | None = None,
) -> int:
    """How long a step takes when every stage does its tasks in the schedule's order, each as soon
    as what it needs is there.

    Args:
        schedule, microbatches: see `in_flight`; stages follow each other.
        forward, backward, once: nanoseconds of each stage's tasks; where devices share cores,
            while all of them compute.
        shared: these cores; by default each device has its own.
    """
    stages = range(len(forward))
    takes = {"forward": forward, "backward": backward, "once": once}
    orders = [
        [(kind, stage, n) for kind, n in _order(schedule, stage, len(stages), microbatches)]
        for stage in stages
    ]
    return _simulated(
        orders,
        lambda task: takes[task[0]][task[1]],
        lambda task: _needs(*task, len(stages)),
        shared,
    )


def simulated_side_by_side(
    parts: Sequence[Sequence[Part]], once: Sequence[int], shared: SharedCores | None = None
) -> int:
    """How long a step of one microbatch takes whose stages wait for parts of each other alone.

    A stage goes forward through its parts in order, and back in the inverse order.

    Args:
        parts: of each stage.
        once: nanoseconds of each stage that come once.
        shared: as of `simulated_step`.
    """
    readers: dict[tuple[int, int], set[_Task]] = {}
    for stage, own in enumerate(parts):
        for number, part in enumerate(own):
            for needed in part.needs:
                readers.setdefault(needed, set()).add(("backward", stage, number))
    orders: list[list[_Task]] = [
        [
            *(("forward", stage, number) for number in range(len(own))),
            *(("backward", stage, number) for number in reversed(range(len(own)))),
            ("once", stage, 0),
        ]
        for stage, own in enumerate(parts)
    ]

    def takes(task: _Task) -> int:
        kind, stage, number = task
        part = parts[stage][number]
        return {"forward": part.forward, "backward": part.backward, "once": once[stage]}[kind]

    def needs(task: _Task) -> set[_Task]:
        kind, stage, number = task
        if kind == "forward":
            return {("forward", *needed) for needed in parts[stage][number].needs}
        return readers.get((stage, number), set()) if kind == "backward" else set()

    return _simulated(orders, takes, needs, shared)


def _simulated(
    orders: Sequence[Sequence[_Task]],
    takes: Callable[[_Task], int],
    needs: Callable[[_Task], set[_Task]],
    shared: SharedCores | None,
) -> int:
    """Nanoseconds until each stage has done its tasks in order."""
    stages = range(len(orders))
    left = [float(takes(order[0])) for order in orders]
    done: set[_Task] = set()
    place, now = [0] * len(stages), 0.0
    while waiting := [stage for stage in stages if place[stage] < len(orders[stage])]:
        running = [stage for stage in waiting if needs(orders[stage][place[stage]]) <= done]
        speed = 1.0 if shared is None else shared.speed(running)
        first = min(running, key=lambda stage: left[stage])
        passed = left[first] / speed
        now += passed
        for stage in running:
            left[stage] = max(0.0, left[stage] - passed * speed)
            if stage == first or left[stage] < _ROUNDING:
                done.add(orders[stage][place[stage]])
                place[stage] += 1
                if place[stage] < len(orders[stage]):
                    left[stage] = takes(orders[stage][place[stage]])
    return round(now)


def _order(schedule: Schedule, stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """One stage's tasks: forward passes until as many are in flight as may be, then in turns; last
    what comes once."""
    if schedule not in SCHEDULES:
        raise OptionError.one_of("a schedule", schedule, SCHEDULES)
    ahead = in_flight(schedule, stage, stages, microbatches)
    order = [("forward", number) for number in range(ahead)]
    for number in range(microbatches):
        order.append(("backward", number))
        if ahead + number < microbatches:
            order.append(("forward", ahead + number))
    return [*order, ("once", 0)]


def _needs(kind: str, stage: int, microbatch: int, stages: int) -> set[_Task]:
    """The tasks of other stages that one waits for."""
    if kind == "forward" and stage:
        return {("forward", stage - 1, microbatch)}
    if kind == "backward" and stage < stages - 1:
        return {("backward", stage + 1, microbatch)}
    return set()
