"""The time of a step in stages: estimated, or simulated in the order of the schedule.

Stages follow each other as a pipeline, or run side by side. In the second case each stage consists
of parts, and a part waits for the parts of other stages that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tensoropt.converters import Natural
from tensoropt.errors import OptionError
from tensoropt.transformations.staged.order_of_passes import SCHEDULES, Schedule, in_flight

__all__ = [
    "SharedCores",
    "StagePart",
    "TimedTask",
    "simulated_side_by_side",
    "simulated_step",
    "simulated_tasks",
    "step_nanoseconds",
]

_Task = tuple[str, int, int]
"""The kind of a task, its stage, and the number of its microbatch or part."""


class TimedTask(NamedTuple):
    """A task of a simulated step.

    Attributes:
        kind: "forward", "backward" or "once".
        stage: number of its stage.
        number: number of its microbatch or part.
        start, end: nanoseconds from the start of the step.
    """

    kind: str
    stage: int
    number: int
    start: float
    end: float


_ROUNDING = 1e-3
"""Remaining nanoseconds below which a task is done."""


def step_nanoseconds(
    schedule: Schedule,
    microbatches: int,
    forward: Sequence[int],
    backward: Sequence[int],
    once: Sequence[int],
) -> int:
    """Estimate the nanoseconds of a step from its first microbatch and its longest stage.

    The first microbatch passes all stages forward and backward. Under 1F1B each further one adds
    the forward and backward pass of the stage that takes longest. Under GPipe it adds the longest
    forward pass and the longest backward pass; that is exact, since the forward passes, and the
    backward passes, are a flow shop of equal jobs. The longest work that a stage does once per step
    is added to either.

    Args:
        schedule, microbatches: see `simulated_tasks`.
        forward, backward, once: nanoseconds of each stage's tasks.
    """
    longest = (
        max(forward) + max(backward)
        if schedule == "gpipe"
        else max(f + b for f, b in zip(forward, backward, strict=True))
    )
    return sum(forward) + sum(backward) + (microbatches - 1) * longest + max(once)


@dataclass(frozen=True, slots=True)
class SharedCores:
    """A machine with more devices (processes) than cores, which share the cores evenly.

    While some stages wait, the other stages have more of the cores and are faster.

    Attributes:
        cores: number of cores.
        devices: number of devices of each stage, all on this machine.
    """

    cores: int
    devices: tuple[int, ...]

    def speed(self, running: Iterable[int]) -> float:
        """The speed of some stages while the others wait, relative to that while all stages run."""
        all_devices = sum(self.devices)
        busy = sum(self.devices[stage] for stage in running)
        return max(1.0, all_devices / max(self.cores, busy))


@dataclass(frozen=True, slots=True)
class StagePart:
    """Consecutive operators of a stage that runs beside other stages.

    Attributes:
        forward, backward: nanoseconds of its passes, including sending.
        needs: the parts of other stages that it reads, as (stage, number).
    """

    forward: Natural
    backward: Natural
    needs: tuple[tuple[Natural, Natural], ...] = ()


def simulated_step(
    schedule: Schedule,
    microbatches: int,
    forward: Sequence[int],
    backward: Sequence[int],
    once: Sequence[int],
    shared: SharedCores | None = None,
) -> int:
    """The nanoseconds of a step, see `simulated_tasks`."""
    return _time_of(simulated_tasks(schedule, microbatches, forward, backward, once, shared))


def simulated_tasks(
    schedule: Schedule,
    microbatches: int,
    forward: Sequence[int],
    backward: Sequence[int],
    once: Sequence[int],
    shared: SharedCores | None = None,
) -> list[TimedTask]:
    """The tasks of a step in which each stage does its tasks in the schedule's order.

    A task starts as soon as the tasks that it needs are done.

    Args:
        schedule, microbatches: see `in_flight`; stages follow each other.
        forward, backward, once: nanoseconds of each stage's tasks; with shared cores, the time
            that they take while all devices compute.
        shared: the shared cores; None if each device has its own.
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
    parts: Sequence[Sequence[StagePart]], once: Sequence[int], shared: SharedCores | None = None
) -> int:
    """The nanoseconds of a step of one microbatch, in stages that run beside each other.

    Each stage passes forward through its parts in order, then backward in the reverse order, and
    then does the work of once per step. A part waits for the parts that it needs, and backward for
    those that need it.

    Args:
        parts: the parts of each stage.
        once: nanoseconds of each stage's work that is done once.
        shared: as in `simulated_step`.
    """
    readers: dict[tuple[int, int], set[_Task]] = {}
    for stage, stage_parts in enumerate(parts):
        for number, part in enumerate(stage_parts):
            for needed in part.needs:
                readers.setdefault(needed, set()).add(("backward", stage, number))
    orders: list[list[_Task]] = [
        [
            *(("forward", stage, number) for number in range(len(stage_parts))),
            *(("backward", stage, number) for number in reversed(range(len(stage_parts)))),
            ("once", stage, 0),
        ]
        for stage, stage_parts in enumerate(parts)
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

    return _time_of(_simulated(orders, takes, needs, shared))


def _time_of(tasks: Sequence[TimedTask]) -> int:
    """The nanoseconds until all tasks are done."""
    return round(max((task.end for task in tasks), default=0.0))


def _simulated(
    orders: Sequence[Sequence[_Task]],
    takes: Callable[[_Task], int],
    needs: Callable[[_Task], set[_Task]],
    shared: SharedCores | None,
) -> list[TimedTask]:
    """The tasks with their times, in the order in which they end."""
    stages = range(len(orders))
    remaining = [float(takes(order[0])) for order in orders]
    done: set[_Task] = set()
    tasks: list[TimedTask] = []
    begun: dict[_Task, float] = {}
    place, now = [0] * len(stages), 0.0
    while waiting := [stage for stage in stages if place[stage] < len(orders[stage])]:
        running = [stage for stage in waiting if needs(orders[stage][place[stage]]) <= done]
        for stage in running:
            begun.setdefault(orders[stage][place[stage]], now)
        speed = 1.0 if shared is None else shared.speed(running)
        first = min(running, key=lambda stage: remaining[stage])
        passed = remaining[first] / speed
        now += passed
        for stage in running:
            remaining[stage] = max(0.0, remaining[stage] - passed * speed)
            if stage == first or remaining[stage] < _ROUNDING:
                task = orders[stage][place[stage]]
                done.add(task)
                tasks.append(TimedTask(*task, begun[task], now))
                place[stage] += 1
                if place[stage] < len(orders[stage]):
                    remaining[stage] = takes(orders[stage][place[stage]])
    return tasks


def _order(schedule: Schedule, stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """The tasks of one stage in order.

    First are the forward passes of as many microbatches as may be in flight. Then backward and
    forward passes alternate. The work that is done once is last.
    """
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
    """The tasks of other stages that a task waits for."""
    if kind == "forward" and stage:
        return {("forward", stage - 1, microbatch)}
    if kind == "backward" and stage < stages - 1:
        return {("backward", stage + 1, microbatch)}
    return set()
