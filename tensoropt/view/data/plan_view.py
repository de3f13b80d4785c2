"""A plan as a person reads it: the one data object behind the text, the notebook and the pictures.

`tensoropt.view.view_of` builds it. Layers are the script's name scopes. Times are nanoseconds of
one step, memory is bytes on one device; both are predicted unless a name says measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensoropt.converters import Positive, from_values, to_values
from tensoropt.view.data.layers import Communication, LayerView
from tensoropt.view.data.memory import MemoryView
from tensoropt.view.data.points import PointView
from tensoropt.view.data.stages import Pass, StageView
from tensoropt.view.data.summary import Measured, Summary

__all__ = ["PlanView"]

SCHEMA = 1


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
