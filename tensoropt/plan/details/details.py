"""Facts of a plan for people, which a run does not need: moves, memory, the parts of the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tensoropt.converters import Natural, Text
from tensoropt.cost.peak.held_memory import HeldMemory
from tensoropt.plan.details.move import Move

__all__ = ["Details", "OtherStrategy", "TimePart"]


class TimePart(NamedTuple):
    """A part of a step's predicted time.

    Attributes:
        name: its name in words.
        nanoseconds: its time; negative for the part of collectives that hides behind computation.
    """

    name: Text
    nanoseconds: int


class OtherStrategy(NamedTuple):
    """A strategy that the plan is compared with.

    Attributes:
        name: its name, such as "data parallelism".
        memory_bytes: the search's sum of memory per device.
        executed_nanoseconds: its predicted step as it is executed.
        peak_bytes: its estimated peak; None if it cannot be estimated.
    """

    name: Text
    memory_bytes: Natural
    executed_nanoseconds: Natural
    peak_bytes: Natural | None


@dataclass(frozen=True, slots=True)
class Details:
    """What `tensoropt.view` shows of a plan besides its operators.

    Attributes:
        moves: the moves of tensors between devices.
        memory: what holds the memory of a device; None if it cannot be followed.
        time: the parts of the step's predicted time, which add up to it; empty if unknown.
        others: strategies to compare the plan with.
    """

    moves: tuple[Move, ...] = ()
    memory: HeldMemory | None = None
    time: tuple[TimePart, ...] = ()
    others: tuple[OtherStrategy, ...] = ()
