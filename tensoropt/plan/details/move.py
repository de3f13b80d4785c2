"""A move of tensors between devices as a plan records it, for people who ask what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from annotated_types import Len

from tensoropt.converters import Natural, Positive

__all__ = ["Move", "MoveStep", "Purpose"]

Purpose = Literal[
    "forward",
    "backward",
    "gradient sum",
    "statistics",
    "inside",
    "again",
    "between stages",
    "back between stages",
]
"""The reason of a move: a tensor on its way to its readers; its gradient on the way back; the sum
of weights' gradients over devices; the average of statistics of batch normalisation; a collective
inside an operator that devices share; a tensor that is resharded again for the backward pass; a
message between the stages of a pipeline; its gradient in a message back."""


class MoveStep(NamedTuple):
    """One collective or local copy of a move.

    Attributes:
        kind: kind of step, as in `tensoropt.cost.model.CostModel`; "message" between stages.
        axes: mesh axes of its groups.
        bytes: bytes that a device holds before it (after it, if it is local).
    """

    kind: str
    axes: tuple[Natural, ...]
    bytes: Natural


@dataclass(frozen=True, slots=True)
class Move:
    """A move that a step makes once or several times.

    Attributes:
        purpose: see `Purpose`.
        tensors: names of the operators whose outputs, or whose outputs' gradients, it moves.
            Gradients of weights have the names of the variables.
        readers: names of the operators that read the tensors forward.
        steps: its collectives and copies, in order. Axes are those of the stage's mesh.
        times: the number of times that a step makes it.
        network_nanoseconds: the time of all its collectives in a step, from the arrival of the last
            device; 0 if it only copies.
        stage: number of the stage whose devices make it; None without stages.
    """

    purpose: Purpose
    tensors: tuple[str, ...]
    readers: tuple[str, ...]
    steps: Annotated[tuple[MoveStep, ...], Len(1)]
    times: Positive
    network_nanoseconds: Natural
    stage: Natural | None = None
