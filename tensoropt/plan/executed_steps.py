"""What the steps of plans took in this process, for plans to compare with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # plans look up their steps here
    from tensoropt.plan.plan import Plan

__all__ = ["WARM_UP", "ExecutedSteps", "executed_steps", "forget_steps"]

WARM_UP = 1
"""The first step gives variables their values, and emits what its fetches need besides."""

_PEAKS = 3
"""Steps after it whose memory is counted: they allocate alike, and counting takes time."""


@dataclass(slots=True)
class ExecutedSteps:
    """What the steps of a plan took on this rank, the first one among them.

    Attributes:
        step_seconds: of each step, in all.
        network_seconds: of each step, inside collectives, waiting for other ranks included; 0
            where all ranks are in one process.
        peak_bytes: of each step, the most memory that was in use at once; None where nothing
            counts it, and of all but the first few steps.
        stage: of a pipeline, that this rank is in; None without, and where one process has all.
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
