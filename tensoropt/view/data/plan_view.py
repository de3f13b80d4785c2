"""A plan as a person reads it: the one data object behind the text, the notebook and the pictures.

`tensoropt.view.view_of` builds it. Layers are the script's name scopes. Times are nanoseconds of
one step, memory is bytes on one device; both are predicted unless a name says measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tensoropt.converters import Natural, Number, Positive, from_values, to_values
from tensoropt.cost.peak.held_memory import Holder
from tensoropt.plan.point_peak import PeakSource, shown_bytes
from tensoropt.view.data.layers import Communication, LayerView
from tensoropt.view.data.summary import Measured, Summary

__all__ = [
    "Alive",
    "MemoryAt",
    "MemoryView",
    "Pass",
    "PassKind",
    "PlanView",
    "PointKind",
    "PointView",
    "Share",
    "StageView",
]


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


PassKind = Literal["forward", "backward", "once"]


@dataclass(frozen=True, slots=True)
class StageView:
    """A pipeline's stage.

    Attributes:
        devices: numbers of its devices.
        layers: names of its rows.
        forward_nanoseconds, backward_nanoseconds: the passes of one microbatch.
        once_nanoseconds: work that is done once a step.
        waits: share of the step in which its devices wait.
        memory_bytes: the search's sum.
        peak_bytes: the predicted peak; None if it is unknown.
        recompute: whether its forward pass runs again before its backward pass.
    """

    devices: tuple[Natural, ...]
    layers: tuple[str, ...]
    forward_nanoseconds: Natural
    backward_nanoseconds: Natural
    once_nanoseconds: Natural
    waits: Number
    memory_bytes: Natural
    peak_bytes: Natural | None
    recompute: bool


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass of one microbatch through a stage.

    Attributes:
        stage: number of the stage.
        kind: "once" is the work that a stage does once a step.
        microbatch: number of the microbatch.
        start, end: nanoseconds from the start of the step.
    """

    stage: Natural
    kind: PassKind
    microbatch: Natural
    start: Natural
    end: Natural


PointKind = Literal["plan", "frontier", "data parallelism", "other algorithm"]


@dataclass(frozen=True, slots=True)
class PointView:
    """One point of memory and time.

    Attributes:
        kind: the plan; another point of the frontier; data parallelism or another algorithm, which
            may lie above the frontier.
        name: the way to run the step, or the algorithm.
        number: position in the plan's frontier; None for other points.
        memory_bytes: the search's sum of kept tensors.
        nanoseconds: the predicted step as it is executed.
        peak_bytes: the predicted peak; None if it is unknown.
        peak_source: how the peak is known; None if it is unknown.
        fits: whether it fits the limit of memory.
    """

    kind: PointKind
    name: str
    number: Natural | None
    memory_bytes: Natural
    nanoseconds: Natural
    peak_bytes: Natural | None
    peak_source: PeakSource | None
    fits: bool

    @property
    def shown_bytes(self) -> int:
        """The memory of the point as it is shown: its peak, or its sum where that is unknown."""
        return shown_bytes(self.memory_bytes, self.peak_bytes)


SCHEMA = 2


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan as a person reads it.

    Attributes:
        summary: the plan in some numbers.
        layers: rows of like layers, in the model's order.
        communication: all communication, the slowest first. Stages of a pipeline communicate at the
            same time.
        memory: what holds the memory.
        frontier: points of memory and time, the least memory as shown first; the plan is one of
            them.
        stages: the stages of a pipeline.
        schedule: the passes of a pipeline's step.
        measured: measured costs; empty if the plan has not run.
        notes: the plan's notes.
        schema: version of this form.
    """

    summary: Summary
    layers: tuple[LayerView, ...]
    communication: tuple[Communication, ...]
    memory: MemoryView
    frontier: tuple[PointView, ...]
    stages: tuple[StageView, ...]
    schedule: tuple[Pass, ...]
    measured: tuple[Measured, ...]
    notes: tuple[str, ...]
    schema: Positive = SCHEMA

    def layer(self, name: str) -> LayerView:
        """The row that has a layer.

        Args:
            name: the name of a row, or of a layer in it.

        Raises:
            KeyError: if there is none.
        """
        for row in self.layers:
            if name == row.name or name in row.names:
                return row
        raise KeyError(name)

    @property
    def has_peaks(self) -> bool:
        """Whether points are shown by their peaks; else no peak is known."""
        return any(point.peak_bytes is not None for point in self.frontier)

    def costliest(self, count: int) -> tuple[LayerView, ...]:
        """The rows that take most of the step's time, the costliest first."""
        return tuple(sorted(self.layers, key=lambda row: -row.nanoseconds)[:count])

    def to_json(self) -> dict[str, Any]:
        """The view as JSON values."""
        values: dict[str, Any] = to_values(self)
        return values

    @classmethod
    def from_json(cls, values: object) -> PlanView:
        """The inverse of `to_json`.

        Raises:
            PlanError: if the values break the schema.
        """
        return from_values(cls, values, "a view is as it was built. Got", "Build it from its plan.")
