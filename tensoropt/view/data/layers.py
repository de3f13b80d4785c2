"""The layers of a plan and their communication as a person reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensoropt.converters import Natural, Positive
from tensoropt.plan.details.move import Purpose

__all__ = ["Communication", "LayerView", "Replicated", "Split"]


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
        measured_nanoseconds: its operators as ranks traced them; None without a trace.
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
    measured_nanoseconds: Natural | None = None

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
