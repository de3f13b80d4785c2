"""What holds the memory of a device."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.converters import Natural
from tensoropt.cost.peak.held_memory import Holder

__all__ = ["Alive", "MemoryAt", "MemoryView", "Share"]


@dataclass(frozen=True, slots=True)
class Share:
    """Memory of one holder.

    Attributes:
        holder: see `tensoropt.cost.peak.held_memory.Holder`.
        bytes: its bytes.
    """

    holder: Holder
    bytes: Natural


@dataclass(frozen=True, slots=True)
class Alive:
    """A tensor in memory at the peak.

    Attributes:
        name: its operator, or "gradient of ...".
        layer: the row of its operator; empty if it is in none.
        holder: see `tensoropt.cost.peak.held_memory.Holder`.
        bytes: its bytes.
    """

    name: str
    layer: str
    holder: Holder
    bytes: Natural


@dataclass(frozen=True, slots=True)
class MemoryAt:
    """The memory in use at one event of a step.

    Attributes:
        event: position among the events of the step.
        at: its name: an operator, or "gradient of ...".
        layer: the row of the operator; empty if it is in none.
        bytes: memory in use, by holder in the order of `MemoryView.holders`.
    """

    event: Natural
    at: str
    layer: str
    bytes: tuple[Natural, ...]


@dataclass(frozen=True, slots=True)
class MemoryView:
    """What holds the memory of a device.

    Attributes:
        peak: the holders at the peak, the largest first. They add up to ``peak_bytes``.
        peak_bytes: the predicted peak, or the search's sum if it is unknown.
        at: the operator at which it is reached; empty if unknown.
        alive: the largest tensors at the peak, the largest first.
        holders: the holders of ``step``'s numbers.
        step: the memory over the step, at most some hundred events; empty if unknown.
        events: number of all events of the step.
    """

    peak: tuple[Share, ...]
    peak_bytes: Natural
    at: str
    alive: tuple[Alive, ...]
    holders: tuple[Holder, ...]
    step: tuple[MemoryAt, ...]
    events: Natural
