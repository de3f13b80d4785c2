"""The result of measuring candidate plans: times and memory, and which one was adopted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

__all__ = ["Trial", "Validation"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate, and what its steps took on the slowest device.

    Attributes:
        name: which strategy it is, such as "data parallelism".
        time_nanoseconds: predicted time of a step as it is executed; in plans older than schema 11
            the search's sum.
        memory_bytes: predicted memory per device, see `Plan.memory_bytes`.
        steps: how many steps were timed.
        measured_seconds: median time of a step; None where it was dropped before that.
        measured_network_seconds: median time in collectives; None likewise.
        measured_peak_bytes: peak memory of a device; None where nothing counts it.
        dropped: why it could not be adopted; empty where it could.
    """

    name: str
    time_nanoseconds: int
    memory_bytes: int
    steps: int = 0
    measured_seconds: float | None = None
    measured_network_seconds: float | None = None
    measured_peak_bytes: int | None = None
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
        asked: how many points of the frontier were asked for.
        trials: the candidates, in the order in which they were tried.
        adopted: position of the one that the plan is.
        remarks: what could not be measured, and why.
    """

    asked: int
    trials: tuple[Trial, ...]
    adopted: int
    remarks: tuple[str, ...] = ()

    @property
    def comparisons(self) -> int:
        """Pairs of measured candidates between which the prediction makes a difference."""
        return len(self._pairs())

    @property
    def overruled(self) -> int:
        """Pairs of which the one that was predicted to be faster was measured to be slower."""
        return sum(predicted * measured < 0 for predicted, measured in self._pairs())

    def _pairs(self) -> list[tuple[int, float]]:
        """Of each pair the predicted and the measured difference."""
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
        """How often measuring overruled the prediction, as a sentence."""
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

    def to_json(self) -> dict[str, Any]:
        """As the plan's schema has it."""
        return {
            "asked": self.asked,
            "trials": [asdict(trial) for trial in self.trials],
            "adopted": self.adopted,
            "remarks": list(self.remarks),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Validation:
        """The inverse of `to_json`, of values that follow the schema."""
        return cls(
            asked=values["asked"],
            trials=tuple(Trial(**trial) for trial in values["trials"]),
            adopted=values["adopted"],
            remarks=tuple(values["remarks"]),
        )
