"""A plan as a person reads it: the one data object behind the text, the notebook and the pictures.

`tensoropt.view.view_of` builds it. Layers are the script's name scopes. Times are nanoseconds of
one step, memory is bytes on one device; both are predicted unless a name says measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tensoropt.converters import Natural, Number, Positive, from_values, to_values
from tensoropt.cost.peak.held_memory import Holder
from tensoropt.plan.details.move import Purpose

__all__ = [
    "Alive",
    "ClusterLevel",
    "Communication",
    "LayerView",
    "Measured",
    "MemoryAt",
    "MemoryView",
    "Pass",
    "PassKind",
    "PlanView",
    "PointKind",
    "PointView",
    "Replicated",
    "Share",
    "Split",
    "StageView",
    "Summary",
    "TimePart",
]

SCHEMA = 1

PassKind = Literal["forward", "backward", "once"]
PointKind = Literal["plan", "frontier", "data parallelism", "other algorithm"]


@dataclass(frozen=True, slots=True)
class ClusterLevel:
    """One level of the devices, outermost first.

    Attributes:
        name: the name of its groups, such as "machine"; the innermost is "device".
        count: number of groups in each group of the level before.
    """

    name: str
    count: Positive


@dataclass(frozen=True, slots=True)
class Split:
    """The division of one dimension of a layer's work over devices.

    Attributes:
        dimension: its name, such as "batch", "columns" or "heads"; "columns, then rows" if
            operators of the layer differ. Empty if the devices repeat the same work.
        pieces: number of pieces.
        over: the devices, such as "the 2 machines" or "the 8 devices of each machine".
        level: number of the cluster's level that the devices belong to.
    """

    dimension: str
    pieces: Positive
    over: str
    level: Natural


@dataclass(frozen=True, slots=True)
class Replicated:
    """Work that several devices repeat, or weights that they all hold.

    Attributes:
        what: "work" of operators, or "weights".
        operators: names of the operators, or of the variables.
        copies: number of devices that do, or hold, the same.
        why: the reason.
        nanoseconds: the operators' time in the step.
        bytes: the weights' bytes on one device.
    """

    what: Literal["work", "weights"]
    operators: tuple[str, ...]
    copies: Positive
    why: str
    nanoseconds: Natural
    bytes: Natural


@dataclass(frozen=True, slots=True)
class LayerView:
    """One layer, or several like layers: the same scope with other numbers, divided alike.

    Attributes:
        name: the scope, with the range of a number that counts like layers: "encoder/layer1-6".
        names: the scopes of all its layers, in the model's order.
        stage: number of the pipeline's stage; None without stages.
        words: its division in words.
        splits: the same as data, the slowest links first.
        replicated: what its devices repeat.
        types: its operators' types, the costliest first.
        operators: names of its operators.
        shape: shape of the largest output of one operator; empty if unknown.
        reads: names of the rows that it reads.
        operators_nanoseconds: its operators, forward and backward.
        network_nanoseconds: its communication, all layers of the row together: what it sends to
            its readers and back, and its part of sums of gradients.
        communicated_bytes: bytes that a device holds before its collectives, summed over a step.
        weight_bytes: its variables that are trained, on one device.
        memory_bytes: its operators' memory as the search counts it.
        communication: positions in `PlanView.communication`.
    """

    name: str
    names: tuple[str, ...]
    stage: Natural | None
    words: str
    splits: tuple[Split, ...]
    replicated: tuple[Replicated, ...]
    types: tuple[str, ...]
    operators: tuple[str, ...]
    shape: tuple[int, ...]
    reads: tuple[str, ...]
    operators_nanoseconds: Natural
    network_nanoseconds: Natural
    communicated_bytes: Natural
    weight_bytes: Natural
    memory_bytes: Natural
    communication: tuple[Natural, ...]

    @property
    def count(self) -> int:
        """The number of like layers."""
        return len(self.names)

    @property
    def nanoseconds(self) -> int:
        """Operators and communication, as if nothing ran beside anything."""
        return self.operators_nanoseconds + self.network_nanoseconds


@dataclass(frozen=True, slots=True)
class Communication:
    """Communications of one kind between the same rows of layers.

    Attributes:
        purpose: see `tensoropt.plan.details.move.Purpose`.
        collectives: MPI's names of its collectives in their order, such as "allreduce".
        what: the tensors in words: "gradients of 12 weights", "output of layer1/add".
        tensors: names of the tensors, or of the weights.
        source: the row that makes them.
        targets: the rows that read them; for a sum of gradients the rows of the weights.
        over: the devices in words.
        group: number of devices that communicate with each other.
        groups: number of such groups.
        bytes: bytes that a device holds before each, the mean.
        times: number of communications in a step.
        nanoseconds: the time of all of them from the arrival of the last device.
    """

    purpose: Purpose
    collectives: tuple[str, ...]
    what: str
    tensors: tuple[str, ...]
    source: str
    targets: tuple[str, ...]
    over: str
    group: Positive
    groups: Positive
    bytes: Natural
    times: Positive
    nanoseconds: Natural

    @property
    def step_bytes(self) -> int:
        """Bytes in a step."""
        return self.bytes * self.times


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


@dataclass(frozen=True, slots=True)
class PointView:
    """One point of memory and time.

    Attributes:
        kind: the plan; another point of the frontier; data parallelism or another algorithm, which
            may lie above the frontier.
        name: the way to run the step, or the algorithm.
        number: position in the plan's frontier; None for other points.
        memory_bytes: the search's sum.
        nanoseconds: the search's sum of times.
        peak_bytes: the predicted peak; None if it is unknown.
        fits: whether it fits the limit of memory.
    """

    kind: PointKind
    name: str
    number: Natural | None
    memory_bytes: Natural
    nanoseconds: Natural
    peak_bytes: Natural | None
    fits: bool


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
        start, end: nanoseconds from the begin of the step.
    """

    stage: Natural
    kind: PassKind
    microbatch: Natural
    start: Natural
    end: Natural


@dataclass(frozen=True, slots=True)
class TimePart:
    """A part of the predicted step.

    Attributes:
        name: its name in words.
        nanoseconds: its time; that of "beside computation" is taken off.
    """

    name: str
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured costs beside the predicted ones.

    Attributes:
        name: "step time", "network time" or "peak memory".
        unit: "ms" or "MiB".
        predicted: the prediction; None if there is none.
        measured: the median, or the largest peak; None if it was not measured.
    """

    name: str
    unit: str
    predicted: Number | None
    measured: Number | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The plan in some numbers.

    Attributes:
        sentence: the plan in one sentence.
        option: the option of `find_strategy`.
        algorithm: the solver.
        way: the way to run the step, such as "2 stages, 8 microbatches".
        cluster: the cluster's name.
        devices: number of devices.
        levels: the levels of the devices.
        operators, split_operators: number of operators that compute, and of those that are split.
        step_nanoseconds: predicted time of a step.
        network_nanoseconds: the part of it inside collectives.
        time: the parts of the step; empty if they are unknown.
        memory_bytes: the search's sum.
        peak_bytes: the predicted peak; None if it is unknown.
        peak_is_estimated: whether no dry run gave the peak.
        memory_limit_bytes: the most memory that the search's sum may take; None for no limit.
        microbatches: parts of the batch.
        schedule: order of a pipeline's passes; None without stages.
        copies: copies of a pipeline.
        compared: the comparison with fewer devices; may be empty.
    """

    sentence: str
    option: str
    algorithm: str
    way: str
    cluster: str
    devices: Positive
    levels: tuple[ClusterLevel, ...]
    operators: Natural
    split_operators: Natural
    step_nanoseconds: Natural
    network_nanoseconds: Natural
    time: tuple[TimePart, ...]
    memory_bytes: Natural
    peak_bytes: Natural | None
    peak_is_estimated: bool
    memory_limit_bytes: Natural | None
    microbatches: Positive
    schedule: str | None
    copies: Positive
    compared: str


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan as a person reads it.

    Attributes:
        summary: the plan in some numbers.
        layers: rows of like layers, in the model's order.
        communication: all communication, the slowest first. Empty in plans older than schema 14.
            Stages of a pipeline communicate at the same time.
        memory: what holds the memory.
        frontier: points of memory and time, the least memory first; the plan is one of them.
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
