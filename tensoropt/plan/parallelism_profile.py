"""What the option ``profiling`` returns: the least time per step at each parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tensoropt.plan.amounts import devices_of

__all__ = ["ParallelismProfile", "ProfilePoint"]


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """The fastest strategy on one number of devices.

    Attributes:
        devices: number of devices.
        time_seconds: predicted time of one step; None where nothing fits the memory limit.
        memory_bytes: predicted peak memory per device of that strategy; where nothing fits, the
            least that any strategy needs.
    """

    devices: int
    time_seconds: float | None
    memory_bytes: int

    @property
    def fits(self) -> bool:
        """Whether some strategy fits the memory limit."""
        return self.time_seconds is not None

    def __str__(self) -> str:
        seconds = self.time_seconds
        time = "does not fit" if seconds is None else f"{seconds * 1e3:,.3f} ms a step"
        return f"{devices_of(self.devices)}: {time}, {self.memory_bytes / 2**20:,.1f} MiB a device"


@dataclass(frozen=True, slots=True)
class ParallelismProfile:
    """Minimal time per step over a range of parallelism (TensorOpt, section 4.1, "Profiling").

    Attributes:
        points: one per number of devices, ascending.
    """

    points: tuple[ProfilePoint, ...]

    def __iter__(self) -> Iterator[ProfilePoint]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    def __str__(self) -> str:
        return "\n".join(map(str, self.points))

    def to_json(self) -> dict[str, Any]:
        """The profile as JSON values."""
        return {"points": [asdict(point) for point in self.points]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ParallelismProfile:
        """The inverse of `to_json`."""
        return cls(tuple(ProfilePoint(**point) for point in values["points"]))
