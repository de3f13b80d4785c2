"""A plan in some numbers: the parts of its step, its devices, predicted and measured costs."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.converters import Natural, Number, Positive

__all__ = ["ClusterLevel", "Measured", "Summary", "TimePart"]


@dataclass(frozen=True, slots=True)
class ClusterLevel:
    """One level of the devices, outermost first.

    Attributes:
        name: the name of its groups, such as "machine"; the innermost is "device".
        count: number of groups in each group of the level before.
    """

    name: str
    count: Positive


@dataclass(frozen=True, slots=True)
class TimePart:
    """A part of the predicted step.

    Attributes:
        name: its name in words.
        nanoseconds: its time; negative for the part of collectives that hides behind computation.
    """

    name: str
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured costs beside the predicted ones.

    Attributes:
        name: "step time", "network time" or "peak memory"; for traces also "operators of no layer".
        unit: "ms" or "MiB".
        predicted: the prediction; None if there is none.
        measured: the median, or the largest peak; None if it was not measured.
    """

    name: str
    unit: str
    predicted: Number | None
    measured: Number | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The plan in some numbers.

    Attributes:
        sentence: the plan in one sentence.
        option: the option of `find_strategy`.
        algorithm: the solver.
        way: the way to run the step, such as "2 stages, 8 microbatches".
        cluster: the cluster's name.
        devices: number of devices.
        levels: the levels of the devices.
        operators, split_operators: number of operators that compute, and of split ones.
        step_nanoseconds: predicted time of a step.
        network_nanoseconds: the part of it inside collectives.
        time: the parts of the step; empty if they are unknown.
        memory_bytes: the search's sum.
        peak_bytes: the predicted peak; None if it is unknown.
        peak_is_estimated: whether no dry run gave the peak.
        memory_limit_bytes: the most memory that the search's sum may take; None for no limit.
        device_limit_bytes: the most that the peak may take; None for no limit.
        microbatches: parts of the batch.
        schedule: order of a pipeline's passes; None without stages.
        copies: copies of a pipeline.
        compared: the comparison with fewer devices; may be empty.
    """

    sentence: str
    option: str
    algorithm: str
    way: str
    cluster: str
    devices: Positive
    levels: tuple[ClusterLevel, ...]
    operators: Natural
    split_operators: Natural
    step_nanoseconds: Natural
    network_nanoseconds: Natural
    time: tuple[TimePart, ...]
    memory_bytes: Natural
    peak_bytes: Natural | None
    peak_is_estimated: bool
    memory_limit_bytes: Natural | None
    device_limit_bytes: Natural | None
    microbatches: Positive
    schedule: str | None
    copies: Positive
    compared: str
