"""Measured costs of the steps of plans in this process, for comparison with predictions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the module of plans imports this one
    from tensoropt.plan.plan import Plan

__all__ = ["WARM_UP", "ExecutedSteps", "executed_steps", "forget_steps"]

WARM_UP = 1
"""First steps that are not compared: they set variables, and emit programs of further fetches."""

_PEAKS = 3
"""Further steps whose memory is counted: all steps allocate alike, and counting takes time."""


@dataclass(slots=True)
class ExecutedSteps:
    """Measured costs of the steps of a plan on this rank, including the first.

    Attributes:
        step_seconds: time of each step.
        network_seconds: time of each step inside collectives, including waiting for other ranks; 0
            if all ranks are in one process.
        peak_bytes: for each step, the most memory in use at once; None if it was not counted, as
            for all but the first few steps.
        stage: the pipeline stage of this rank; None without stages, or if one process has all.
    """

    step_seconds: list[float] = field(default_factory=list)
    network_seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int | None] = field(default_factory=list)
    stage: int | None = None

    @property
    def wants_peak(self) -> bool:
        """Whether memory should be counted in the next step."""
        return len(self.peak_bytes) < WARM_UP + _PEAKS

    def add(self, step_seconds: float, network_seconds: float, peak_bytes: int | None) -> None:
        """Add a step."""
        self.step_seconds.append(step_seconds)
        self.network_seconds.append(network_seconds)
        self.peak_bytes.append(peak_bytes)


_of_plans: dict[str, ExecutedSteps] = {}


def executed_steps(plan: Plan) -> ExecutedSteps:
    """The steps of a plan; equal plans share them (one of them may come from a file)."""
    return _of_plans.setdefault(json.dumps(plan.to_json(), sort_keys=True), ExecutedSteps())


def forget_steps() -> None:
    """Forget the steps of all plans, for a new job."""
    _of_plans.clear()
