"""The result of measuring candidate plans: their times and memory, and the adopted candidate."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

from annotated_types import Ge, Len

from tensoropt.converters import Natural, Number, Positive

__all__ = ["Trial", "Validation"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate, with the costs of its steps on the slowest device.

    Attributes:
        name: name of the strategy, such as "data parallelism".
        time_nanoseconds: predicted time of a step as it is executed.
        memory_bytes: predicted memory per device, see `Plan.memory_bytes`.
        steps: number of timed steps.
        measured_seconds: median time of a step; None if it was dropped before that.
        measured_network_seconds: median time in collectives; None if ``measured_seconds`` is None.
        measured_peak_bytes: peak memory of a device; None if it was not counted.
        dropped: the reason why it could not be adopted; empty if it could.
    """

    name: str
    time_nanoseconds: Natural
    memory_bytes: Natural
    steps: Natural = 0
    measured_seconds: Annotated[Number, Ge(0)] | None = None
    measured_network_seconds: Annotated[Number, Ge(0)] | None = None
    measured_peak_bytes: Natural | None = None
    dropped: str = ""

    def __str__(self) -> str:
        line = f"{self.name}: predicted {self.time_nanoseconds / 1e6:,.3f} ms"
        if self.measured_seconds is not None:
            line += f", measured {self.measured_seconds * 1e3:,.3f} ms on the slowest rank"
        if self.measured_peak_bytes is not None:
            line += f", peak {self.measured_peak_bytes / 2**20:,.1f} MiB"
        return f"{line}; dropped, {self.dropped}" if self.dropped else line


@dataclass(frozen=True, slots=True)
class Validation:
    """Candidates that were measured before one was adopted.

    Attributes:
        asked: number of frontier points to measure, as the user gave it.
        trials: the candidates, in the order of their trials.
        adopted: position of the adopted candidate, which is the plan.
        remarks: candidates that could not be measured, and the reasons.
    """

    asked: Positive
    trials: Annotated[tuple[Trial, ...], Len(1, 1000)]
    adopted: Natural
    remarks: tuple[str, ...] = ()

    @property
    def comparisons(self) -> int:
        """The number of pairs of measured candidates whose predicted times differ."""
        return len(self._pairs())

    @property
    def overruled(self) -> int:
        """The number of pairs whose measured order contradicts the predicted one."""
        return sum(predicted * measured < 0 for predicted, measured in self._pairs())

    def _pairs(self) -> list[tuple[int, float]]:
        """The predicted and the measured difference of each pair."""
        measured = [
            (trial.time_nanoseconds, trial.measured_seconds)
            for trial in self.trials
            if trial.measured_seconds is not None
        ]
        return [
            (one[0] - other[0], one[1] - other[1])
            for one, other in combinations(measured, 2)
            if one[0] != other[0]
        ]

    @property
    def verdict(self) -> str:
        """A sentence that says how often measurements contradicted the prediction."""
        pairs = "comparison" if self.comparisons == 1 else "comparisons"
        return (
            f"measuring overruled the prediction in {self.overruled} of {self.comparisons} {pairs}"
        )

    def __str__(self) -> str:
        lines = [
            f"{trial} (adopted)" if number == self.adopted else str(trial)
            for number, trial in enumerate(self.trials)
        ]
        return "\n".join([*lines, *self.remarks, *([self.verdict] if self.comparisons else [])])
