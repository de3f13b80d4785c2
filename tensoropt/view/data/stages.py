"""The stages of a pipeline and their passes in a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensoropt.converters import Natural, Number

__all__ = ["Pass", "PassKind", "StageView"]

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
        start, end: nanoseconds from the begin of the step.
    """

    stage: Natural
    kind: PassKind
    microbatch: Natural
    start: Natural
    end: Natural
