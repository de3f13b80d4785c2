"""Predicted against measured: what a plan promised, and what its steps took."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

__all__ = ["Comparison", "Measured", "Quantity", "compared"]

OFF = 0.2
"""A prediction that is off by more than this part of what was measured wants a new profile."""

_WARM_UP = 1
"""The first step builds the execution graph."""

_PEAKS = 3
"""Of so many steps after it memory is counted: they allocate alike, and counting takes time."""


@dataclass(slots=True)
class Measured:
    """What the steps of a plan took on this rank; the first one, which builds the execution graph,
    is among them.

    Attributes:
        step_seconds: of each step, in all.
        network_seconds: of each step, inside collectives, waiting for other ranks included; 0
            where all ranks are in one process.
        peak_bytes: of each step, the most memory that was in use at once; None where nothing
            counts it, and of all but the first few steps.
    """

    step_seconds: list[float] = field(default_factory=list)
    network_seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int | None] = field(default_factory=list)

    @property
    def wants_peak(self) -> bool:
        """Whether the next step's peak says something new."""
        return len(self.peak_bytes) < _WARM_UP + _PEAKS


@dataclass(frozen=True, slots=True)
class Quantity:
    """One predicted and measured quantity.

    Attributes:
        name: what it is.
        unit: of both values.
        predicted: None where nothing was predicted.
        measured: None where nothing was measured.
    """

    name: str
    unit: str
    predicted: float | None
    measured: float | None

    @property
    def error(self) -> float | None:
        """(measured - predicted) / measured, as in the paper's Table 2; None without both."""
        if self.predicted is None or not self.measured:
            return None
        return (self.measured - self.predicted) / self.measured

    @property
    def is_off(self) -> bool:
        """Whether the prediction is off by more than 20 %."""
        return self.error is not None and abs(self.error) > OFF

    def __str__(self) -> str:
        def shown(value: float | None) -> str:
            return "-" if value is None else f"{value:,.3f} {self.unit}"

        error = "" if self.error is None else f" ({-self.error:+.1%})"
        return f"{self.name}: predicted {shown(self.predicted)}{error}, measured " + shown(
            self.measured
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Predicted against measured, with what to do about a difference.

    Attributes:
        steps: number of steps measured.
        quantities: time of a step, time inside collectives, and peak memory.
        is_measured: whether the plan was made with a profile of the machine.
    """

    steps: int
    quantities: tuple[Quantity, ...]
    is_measured: bool

    @property
    def advice(self) -> str:
        """What to do; empty where predictions hold. A profile is of times alone, and memory that
        was not needed does no harm."""
        off = [quantity for quantity in self.quantities if quantity.is_off]
        times = [quantity.name for quantity in off if quantity.unit == "ms"]
        again = " again" if self.is_measured else ""
        remedies = []
        if times:
            remedies.append(
                f"{' and '.join(times)} {'was' if len(times) == 1 else 'were'} predicted with an "
                f"error of more than {100 * OFF:.0f} %: run `mpirun -np N tensoropt profile "
                f"SCRIPT`{again}, and find the strategy anew"
            )
        if any(quantity.unit == "MiB" and (quantity.error or 0) > 0 for quantity in off):
            remedies.append(
                f"peak memory was more than predicted, by over {100 * OFF:.0f} %: leave that much "
                "of a device free with memory_limit_bytes"
            )
        return "; ".join(remedies)

    def __str__(self) -> str:
        lines = [f"{self.steps} steps", *map(str, self.quantities)]
        return "\n".join([*lines, self.advice] if self.advice else lines)


def compared(
    measured: Measured,
    step_seconds: float,
    network_seconds: float,
    peak_bytes: int | None,
    is_measured: bool,
) -> Comparison:
    """Medians over the steps after the first against predictions.

    Args:
        measured: the steps.
        step_seconds: predicted, as all that follows.
        network_seconds: of resharding.
        peak_bytes: per device.
        is_measured: whether a profile of the machine was used.
    """
    times = measured.step_seconds[_WARM_UP:]
    network = measured.network_seconds[_WARM_UP:]
    peaks = [peak for peak in measured.peak_bytes[_WARM_UP:] if peak]

    def middle(values: list[float], scale: float) -> float | None:
        return median(values) * scale if values else None

    predicted_peak = None if peak_bytes is None else peak_bytes / 2**20
    return Comparison(
        len(times),
        (
            Quantity("step time", "ms", step_seconds * 1e3, middle(times, 1e3)),
            Quantity("network time", "ms", network_seconds * 1e3, middle(network, 1e3)),
            Quantity("peak memory", "MiB", predicted_peak, max(peaks) / 2**20 if peaks else None),
        ),
        is_measured,
    )
