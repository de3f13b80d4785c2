"""Comparison of a plan's predicted costs with the measured costs of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tensoropt.plan.executed_steps import WARM_UP, ExecutedSteps

__all__ = ["Comparison", "Quantity", "compare"]

OFF = 0.2
"""Relative error of a prediction above which there is advice."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One predicted and measured quantity.

    Attributes:
        name: name of the quantity.
        unit: unit of both values.
        predicted: the predicted value; None if there is none.
        measured: the measured value; None if there is none.
        margin: factor by which the measured value may exceed the predicted one; above 1 if the
            predicted value is a rough estimate.
    """

    name: str
    unit: str
    predicted: float | None
    measured: float | None
    margin: float = 1.0

    @property
    def error(self) -> float | None:
        """(measured - predicted) / measured, as in the paper's Table 2; None without both."""
        if self.predicted is None or not self.measured:
            return None
        return (self.measured - self.predicted) / self.measured

    @property
    def is_off(self) -> bool:
        """Whether the prediction is off by more than 20 %, beyond its margin."""
        if self.error is None or self.predicted is None or self.measured is None:
            return False
        above = self.measured - self.margin * self.predicted
        return max(above / self.measured, -self.error) > OFF

    def __str__(self) -> str:
        def text(value: float | None) -> str:
            return "-" if value is None else f"{value:,.3f} {self.unit}"

        error = "" if self.error is None else f" ({-self.error:+.1%})"
        how = "estimated" if self.margin > 1 else "predicted"
        return f"{self.name}: {how} {text(self.predicted)}{error}, measured " + text(self.measured)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Predicted and measured quantities, with advice on differences.

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
        """The advice; empty if predictions hold.

        A profile only improves times, and unused memory is harmless.
        """
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
        lines = [f"{self.steps} steps on this rank", *map(str, self.quantities)]
        return "\n".join([*lines, self.advice] if self.advice else lines)


def compare(
    steps: ExecutedSteps,
    step_seconds: float,
    network_seconds: float,
    peak_bytes: int | None,
    is_measured: bool,
    peak_margin: float = 1.0,
) -> Comparison:
    """Compare predictions with medians over the steps after the first.

    Args:
        steps: the measured costs of the steps.
        step_seconds: predicted time of a step.
        network_seconds: predicted time of resharding.
        peak_bytes: predicted peak per device.
        is_measured: whether a profile of the machine was used.
        peak_margin: margin of the peak, see `Quantity`.
    """
    times = steps.step_seconds[WARM_UP:]
    network = steps.network_seconds[WARM_UP:]
    peaks = [peak for peak in steps.peak_bytes[WARM_UP:] if peak]

    def middle(values: list[float], scale: float) -> float | None:
        return median(values) * scale if values else None

    predicted_peak = None if peak_bytes is None else peak_bytes / 2**20
    peak = max(peaks) / 2**20 if peaks else None
    return Comparison(
        len(times),
        (
            Quantity("step time", "ms", step_seconds * 1e3, middle(times, 1e3)),
            Quantity("network time", "ms", network_seconds * 1e3, middle(network, 1e3)),
            Quantity("peak memory", "MiB", predicted_peak, peak, peak_margin),
        ),
        is_measured,
    )
