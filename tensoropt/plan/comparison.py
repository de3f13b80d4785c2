"""Comparison of a plan's predicted costs with the measured costs of its steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from tensoropt.plan.plan import Plan

__all__ = ["Comparison", "ExecutedSteps", "InputShare", "Quantity", "compare"]

_OFF = 0.2
"""Relative error of a prediction above which there is advice."""
_WARM_UP = 1
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
        return len(self.peak_bytes) < _WARM_UP + _PEAKS

    def add(self, step_seconds: float, network_seconds: float, peak_bytes: int | None) -> None:
        """Add a step."""
        self.step_seconds.append(step_seconds)
        self.network_seconds.append(network_seconds)
        self.peak_bytes.append(peak_bytes)


@dataclass(frozen=True, slots=True)
class InputShare:
    """The part of its steps' time in which the slowest rank waited for input.

    Attributes:
        share: from 0 to 1.
        rank: the rank that waited longest.
    """

    share: float
    rank: int

    def __str__(self) -> str:
        return (
            f"steps waited for input {self.share:.1%} of their time on rank {self.rank}, and less "
            "on other ranks"
        )


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
        return max(above / self.measured, -self.error) > _OFF

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
                f"error of more than {100 * _OFF:.0f} %: run `mpirun -np N tensoropt profile "
                f"SCRIPT`{again}, and find the strategy anew"
            )
        if any(quantity.unit == "MiB" and (quantity.error or 0) > 0 for quantity in off):
            remedies.append(
                f"peak memory was more than predicted, by over {100 * _OFF:.0f} %: leave that much "
                "of a device free with memory_limit_bytes"
            )
        return "; ".join(remedies)

    def __str__(self) -> str:
        lines = [f"{self.steps} steps on this rank", *map(str, self.quantities)]
        return "\n".join([*lines, self.advice] if self.advice else lines)


def compare(plan: Plan, steps: ExecutedSteps) -> Comparison:
    """Compare a plan's predictions with medians over the steps after the first.

    Memory is this rank's, compared with the prediction for its stage, if that is known.

    Args:
        plan: the plan.
        steps: the measured costs of its steps.
    """
    times = steps.step_seconds[_WARM_UP:]
    network = steps.network_seconds[_WARM_UP:]
    peaks = [peak for peak in steps.peak_bytes[_WARM_UP:] if peak]
    predicted = plan.peak_bytes
    if steps.stage is not None:
        stage = plan.stages[steps.stage]
        predicted = stage.memory_bytes if plan.peak_is_estimated else stage.peak_bytes

    def middle(values: list[float]) -> float | None:
        return median(values) * 1e3 if values else None

    def mebibytes(count: int | None) -> float | None:
        return None if count is None else count / 2**20

    step, in_network = plan.predicted_step_seconds * 1e3, plan.predicted_network_seconds * 1e3
    peak = mebibytes(max(peaks, default=None))
    return Comparison(
        len(times),
        (
            Quantity("step time", "ms", step, middle(times)),
            Quantity("network time", "ms", in_network, middle(network)),
            Quantity("peak memory", "MiB", mebibytes(predicted), peak, plan.peak_margin),
        ),
        bool(plan.cluster.measured) or plan.cluster.step_overhead_seconds > 0,
    )
