"""The result of the option ``profiling``: the step for each number of devices and memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tensoropt.converters import from_values, to_values
from tensoropt.plan.amounts import devices_of, mebibytes_of, quantity_of
from tensoropt.plan.details.report_module import report_module

__all__ = ["ParallelismProfile", "ProfilePoint", "ScalingEnd"]

_SAMPLES = 1_000_000
"""Number of samples of a cost."""
_HOUR_SECONDS = 3600
_LEAST_WORTH = 0.5
"""Least gain of samples a second from added devices, as a share of that of perfect scaling. With a
smaller gain, scaling has ended."""


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """The plan of "mini_time" on one number of devices, under one memory limit.

    Attributes:
        devices: number of devices.
        time_seconds: predicted time of one step; None if nothing fits the memory limit.
        memory_bytes: predicted memory per device of that strategy; if nothing fits, the least
            memory that any strategy needs.
        memory_limit_bytes: the given limit; None for the memory of a device.
        batch_size: samples of a step; None if the step is fed no batch.
        device_hour_cost: price of one device for an hour, in the user's currency; None if unknown.
        is_measured: whether this machine was measured with this number of ranks. Predictions for
            other numbers follow from the cluster's figures alone.
        way: the plan in a few words.
        network_seconds: part of the step inside collectives and messages. With stages, it includes
            updates of variables, which are counted with the sums of gradients.
        waiting_seconds: part of the step in which devices wait for other stages, on average.
        least_seconds: None if the searches on these devices came to their end, so that more time
            changes nothing. Else a lower bound of any step of the script's operators there.
    """

    devices: int
    time_seconds: float | None
    memory_bytes: int
    memory_limit_bytes: int | None = None
    batch_size: int | None = None
    device_hour_cost: float | None = None
    is_measured: bool = False
    way: str = ""
    network_seconds: float = 0.0
    waiting_seconds: float = 0.0
    least_seconds: float | None = None

    @property
    def fits(self) -> bool:
        """Whether some strategy fits the memory limit."""
        return self.time_seconds is not None

    @property
    def samples_per_second(self) -> float | None:
        """Samples of a batch divided by the seconds of a step; None if one of them is unknown."""
        if not self.time_seconds or self.batch_size is None:
            return None
        return self.batch_size / self.time_seconds

    @property
    def million_samples_device_seconds(self) -> float | None:
        """Seconds of all devices together for a million samples; None if unknown."""
        rate = self.samples_per_second
        return None if rate is None else self.devices * _SAMPLES / rate

    @property
    def million_samples_cost(self) -> float | None:
        """Cost of a million samples, in the currency of ``device_hour_cost``; None if unknown."""
        seconds = self.million_samples_device_seconds
        if seconds is None or self.device_hour_cost is None:
            return None
        return seconds / _HOUR_SECONDS * self.device_hour_cost

    @property
    def parts(self) -> dict[str, float]:
        """The seconds of the step by their cause, by its name; the seconds of operators last."""
        network, waiting = self.network_seconds, self.waiting_seconds
        operators = max(0.0, (self.time_seconds or 0.0) - network - waiting)
        return {
            "collectives and messages": network,
            "stages that wait for others": waiting,
            "operators that devices do not divide further": operators,
        }

    def __str__(self) -> str:
        seconds, cost = self.time_seconds, self.million_samples_cost
        time = "does not fit" if seconds is None else f"{seconds * 1e3:,.3f} ms a step"
        parts = [time, f"{mebibytes_of(self.memory_bytes)} a device"]
        device_seconds = self.million_samples_device_seconds
        if cost is not None:
            parts.append(f"{quantity_of(cost)} for a million samples")
        elif device_seconds is not None:
            parts.append(f"{quantity_of(device_seconds)} device-seconds for a million samples")
        return f"{devices_of(self.devices)}: {', '.join(parts)}"


class ScalingEnd(NamedTuple):
    """The number of devices above which further devices gain less than half of their share.

    Attributes:
        last: the point after which scaling ends, or may end.
        next: the point with the next number of devices.
        worth: the gain of samples a second from the added devices, as a share of that of perfect
            scaling.
        worth_range: the least and the greatest gain that more time for the searches could show.
            Scaling ends if the greatest is below half; else it may end.
        cause: the part of the step, one of `ProfilePoint.parts`, that exceeds its time under
            perfect scaling most.
    """

    last: ProfilePoint
    next: ProfilePoint
    worth: float
    worth_range: tuple[float, float]
    cause: str

    @property
    def is_certain(self) -> bool:
        """Whether more time for the searches cannot show that scaling goes on."""
        return self.worth_range[1] < _LEAST_WORTH

    def __str__(self) -> str:
        said = (
            f"scaling {'ends' if self.is_certain else 'may end'} at "
            f"{devices_of(self.last.devices)}: the next "
            f"{self.next.devices - self.last.devices:,} gain {max(self.worth, 0):.0%} of the "
            f"samples/s of perfect scaling; most is lost to {self.cause}"
        )
        if self.is_certain:
            return said
        unfinished = [p for p in (self.last, self.next) if p.least_seconds is not None]
        where = " and ".join(devices_of(point.devices) for point in unfinished)
        low, high = (min(max(each, 0), 1) for each in self.worth_range)
        return (
            f"{said}. Time ended the searches on {where}; more of it could show {low:.0%} to "
            f"{high:.0%}"
        )


@dataclass(frozen=True, slots=True)
class ParallelismProfile:
    """The least time of a step for several numbers of devices (TensorOpt, section 4.1,
    "Profiling") and memory limits.

    Attributes:
        points: ordered by number of devices, then by memory limit.
    """

    points: tuple[ProfilePoint, ...]

    def __iter__(self) -> Iterator[ProfilePoint]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    def __str__(self) -> str:
        return "\n".join(map(str, self.points))

    def speedup(self, point: ProfilePoint) -> float | None:
        """The speed of a point's step relative to the fewest devices that fit its memory limit.

        None if the point does not fit.
        """
        if not point.time_seconds:
            return None
        same_limit = [p for p in self if p.memory_limit_bytes == point.memory_limit_bytes]
        slowest = next(other.time_seconds for other in same_limit if other.time_seconds)
        return slowest / point.time_seconds

    def scaling_end(self, memory_limit_bytes: int | None = None) -> ScalingEnd | None:
        """The first end of scaling under a memory limit, be it certain or possible.

        A gain counts as half only if no time in the ranges of both points says less. So an end that
        is certain stays so with more time for the searches. The result is None if scaling does not
        end in this profile, whatever the times in these ranges.
        """
        fitting = [p for p in self if p.memory_limit_bytes == memory_limit_bytes and p.time_seconds]
        for point, more in pairwise(fitting):
            before, after = point.time_seconds or 0.0, more.time_seconds or 0.0
            least, least_after = point.least_seconds or before, more.least_seconds or after
            worth = _worth(point, more, before, after)
            worths = _worth(point, more, least, after), _worth(point, more, before, least_after)
            if worths[0] < _LEAST_WORTH:
                share = _share(point, more)
                parts = point.parts
                lost = {name: part - share * parts[name] for name, part in more.parts.items()}
                return ScalingEnd(point, more, worth, worths, max(lost, key=lost.__getitem__))
        return None

    def plot(self, file: str | Path | None = None) -> Any:
        """Draw time and cost against the number of devices, for each limit of memory.

        Arguments, result and errors are those of `Plan.plot`.
        """
        return report_module().plot_profile(self, file)

    def to_json(self) -> dict[str, Any]:
        """The profile as JSON values."""
        values: dict[str, Any] = to_values(self)
        return values

    @classmethod
    def from_json(cls, values: object) -> ParallelismProfile:
        """The inverse of `to_json`."""
        return from_values(cls, values, "a profile is as it was computed. Got", "Compute it again.")


def _share(point: ProfilePoint, more: ProfilePoint) -> float:
    """Return the share of a point's step that remains on more devices by perfect scaling."""
    return (more.batch_size or 1) / (point.batch_size or 1) * point.devices / more.devices


def _worth(point: ProfilePoint, more: ProfilePoint, before: float, after: float) -> float:
    """Return the gain of samples a second from added devices, as a share of perfect scaling's."""
    gain = more.devices / point.devices * _share(point, more) * before / after - 1
    return gain / (more.devices / point.devices - 1)
