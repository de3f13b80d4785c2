"""The strategies of one model that are executed, and what is known of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from tensoropt.plan.plan import Plan

__all__ = ["BASELINES", "MODELS", "Measured", "along"]

MODELS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "rnn": ("lstm", 128),
        "transformer": ("transformer", 32),
        "vgg16": ("vgg16_dense", 128),
        "wide_resnet": ("wide_resnet", 32),
    }
)
"""For each name the model in `benchmarks.speed.models`, and the examples of a step."""

BASELINES: Mapping[str, str] = MappingProxyType(
    {
        "data_parallel": "data parallelism",
        "optcnn": "OptCNN",
        "tofu": "Tofu",
        "mesh_tensorflow": "Mesh-TensorFlow",
    }
)
"""For each algorithm the name in pictures. Of Mesh-TensorFlow's frontier the fastest runs."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A strategy with its predicted and its measured costs.

    Attributes:
        point: its number on the frontier; None if it is not on it.
        baselines: the keys of `BASELINES` whose strategy it is.
        way: the way in which it runs the step, in a few words.
        predicted_ms: predicted time of a step, as it is executed.
        predicted_network_ms: the part of it inside collectives.
        predicted_bytes: predicted peak of memory of a device.
        measured_ms: measured time of a step on the slowest rank: the median.
        measured_bytes: measured peak of the rank that has the highest: the median.
        spread_ms: half the interquartile range of the measured times.
        turns_ms: the median of each turn.
    """

    point: int | None
    baselines: tuple[str, ...]
    way: str
    predicted_ms: float
    predicted_network_ms: float
    predicted_bytes: int
    measured_ms: float = 0.0
    measured_bytes: int = 0
    spread_ms: float = 0.0
    turns_ms: tuple[float, ...] = ()

    @classmethod
    def of(cls, plan: Plan, point: int | None, baselines: Sequence[str]) -> Measured:
        """Return the strategy of a plan, before it is measured."""
        peak = plan.memory_bytes if plan.peak_bytes is None else plan.peak_bytes
        return cls(
            point,
            tuple(baselines),
            plan.way,
            plan.executed_nanoseconds / 1e6,
            plan.predicted_network_seconds * 1e3,
            peak,
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Measured:
        """Return the strategy of JSON values."""
        lists = {name: tuple(values[name]) for name in ("baselines", "turns_ms")}
        return cls(**{**values, **lists})

    def to_json(self) -> dict[str, Any]:
        """Return the strategy as JSON values."""
        return asdict(self)

    @property
    def name(self) -> str:
        """The number of the point, and the baselines."""
        number = () if self.point is None else (f"point {self.point}",)
        return ", ".join((*number, *(BASELINES[each] for each in self.baselines)))


def along(frontier: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Return the numbers of points at even distances along a frontier, both ends included.

    Distances are those of a picture with logarithmic axes on which the frontier fills a square.
    Points that are even by number would lie where the frontier is dense, with times that no
    measurement tells apart.

    Args:
        frontier: (memory, time) of each point, the least memory first.
        count: the most points.
    """
    if len(frontier) <= count:
        return list(range(len(frontier)))
    logs = np.log(np.array(frontier, np.float64))
    logs = logs / np.maximum(np.ptp(logs, axis=0), 1e-12)
    length = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(logs, axis=0)).sum(1))])
    wanted = np.linspace(0.0, length[-1], count)
    near = {int(np.abs(length - place).argmin()) for place in wanted}
    for place in wanted:  # where two places have one nearest point, the next free one
        if len(near) < count:
            free = [number for number in range(len(frontier)) if number not in near]
            near.add(min(free, key=lambda number: abs(length[number] - place)))
    return sorted(near)
