"""Measured operators: looked up exactly, else scaled from the nearest one of the same type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import log
from statistics import median, median_low
from typing import Any

from tensoropt.cost.cluster import Device
from tensoropt.cost.operator_time import (
    OperatorTime,
    OperatorWork,
    kernel_seconds,
    roofline_time,
)

__all__ = ["MeasuredOperator", "OperatorTimes", "calibrated", "work_key"]

_UNLIKE = 1.0
"""What other attributes count in the distance of two works: as much as a factor e in size."""
_LARGE_NANOSECONDS = 50_000
"""From here on a kernel's rate shows; below it, starting it does."""

Key = tuple[object, ...]


def work_key(work: OperatorWork) -> Key:
    """What two works have in common whose times are the same.

    Bytes are in it because a shape operand (of a fill, say) is not in the local shapes.
    """
    shapes = work.local_shapes
    return (
        *(work.operator, work.attributes, work.dtype),
        *(shapes, work.differentiated_inputs, work.bytes),
    )


@dataclass(frozen=True, slots=True)
class MeasuredOperator:
    """One operator at one local shape, timed while all ranks timed the same.

    Attributes:
        work: what was timed.
        forward_nanoseconds: of its kernel, started by TensorFlow's executor.
        backward_nanoseconds: of its gradient by the differentiated inputs.
        spread: interquartile range of forward and backward together, divided by their median.
        outliers: number of repetitions far outside the quartiles.
    """

    work: OperatorWork
    forward_nanoseconds: int
    backward_nanoseconds: int
    spread: float = 0.0
    outliers: int = 0

    @property
    def time(self) -> OperatorTime:
        """What was measured."""
        return OperatorTime(self.forward_nanoseconds, self.backward_nanoseconds)

    def scaled(self, factor: float) -> MeasuredOperator:
        """The same, had everything taken so much longer."""
        return replace(
            self,
            forward_nanoseconds=max(1, round(self.forward_nanoseconds * factor)),
            backward_nanoseconds=round(self.backward_nanoseconds * factor),
        )

    def to_json(self) -> dict[str, Any]:
        """The measurement as JSON values."""
        own = {name: getattr(self, name) for name in self.__slots__ if name != "work"}
        work = asdict(self.work)
        work["attributes"] = dict(self.work.attributes)
        work["local_shapes"] = [list(shape) for shape in self.work.local_shapes]
        return {**work, **own}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MeasuredOperator:
        """The inverse of `to_json`."""
        own = {name: values[name] for name in cls.__slots__ if name != "work"}
        work = {name: values[name] for name in OperatorWork.__slots__}
        work["attributes"] = tuple(sorted(work["attributes"].items()))
        work["local_shapes"] = tuple(tuple(shape) for shape in work["local_shapes"])
        return cls(OperatorWork(**work), **own)


class OperatorTimes:
    """The time of any operator, from measured ones.

    Args:
        measured: what was timed; several measurements of one work are averaged.
        device: whose rates scale a measurement to another size, see `calibrated`.
        rereading: nanoseconds of each byte that a kernel reads and writes beyond its share of what
            the measured one does, as a weight that each part of a batch reads whole.
    """

    __slots__ = ("_by_key", "_by_type", "_device", "_known", "_rereading")

    def __init__(
        self, measured: Iterable[MeasuredOperator], device: Device, rereading: float = 0.0
    ) -> None:
        self._device, self._rereading = device, rereading
        found: dict[Key, list[MeasuredOperator]] = {}
        for each in measured:
            found.setdefault(work_key(each.work), []).append(each)
        self._by_key = {key: _usual(some) for key, some in found.items()}
        self._by_type: dict[tuple[str, str], list[MeasuredOperator]] = {}
        for each in self._by_key.values():
            self._by_type.setdefault((each.work.operator, each.work.dtype), []).append(each)
        self._known: dict[OperatorWork, OperatorTime] = {}

    def __contains__(self, work: OperatorWork) -> bool:
        return work_key(work) in self._by_key

    def time(self, work: OperatorWork) -> OperatorTime:
        """The measured time; where there is none, the nearest measurement of the type, scaled by
        the ratio of rooflines; where the type was not measured, the roofline."""
        found = self._known.get(work)
        if found is None:
            exact = self._by_key.get(work_key(work))
            found = exact.time if exact is not None else self._scaled(work)
            self._known[work] = found
        return found

    def _scaled(self, work: OperatorWork) -> OperatorTime:
        alike = self._by_type.get((work.operator, work.dtype))
        if not alike:
            return roofline_time(self._device, work)
        nearest = min(alike, key=lambda each: _distance(each.work, work))
        overhead = round(self._device.operator_overhead_seconds * 1e9)
        once = replace(work, differentiated_inputs=1)
        theirs = replace(nearest.work, differentiated_inputs=1)
        ratio = _kernel(self._device, once) / _kernel(self._device, theirs)
        again = round(self._rereading * max(0.0, work.bytes - ratio * nearest.work.bytes))
        forward = again + _grown(nearest.forward_nanoseconds, ratio, overhead)
        inputs, measured_inputs = work.differentiated_inputs, nearest.work.differentiated_inputs
        if inputs == 0:
            return OperatorTime(forward, 0)
        if measured_inputs == 0:
            return OperatorTime(forward, forward * inputs)
        backward = nearest.backward_nanoseconds * inputs // measured_inputs
        return OperatorTime(forward, inputs * again + _grown(backward, ratio, overhead))


def calibrated(device: Device, measured: Iterable[MeasuredOperator], dispatch: int) -> Device:
    """A device with the rates that measured operators reached.

    Args:
        device: whose other figures stay.
        measured: from which contractions give the arithmetic rate (per dtype the median of the
            large ones), other operators the memory bandwidth (the upper quartile of the large
            ones: slower ones compute, too).
        dispatch: nanoseconds of starting an operator.
    """
    rates: dict[str, list[float]] = {}
    bandwidths: list[float] = []
    for each in measured:
        nanoseconds = each.forward_nanoseconds - dispatch
        if each.forward_nanoseconds < _LARGE_NANOSECONDS or nanoseconds < 1:
            continue
        if each.work.family == "contraction":
            rates.setdefault(each.work.dtype, []).append(each.work.flops / nanoseconds * 1e9)
        elif each.work.bytes:
            bandwidths.append(each.work.bytes / nanoseconds * 1e9)
    efficiency = dict(device.efficiency)
    peak = dict(device.peak_flops_per_second)
    contraction = efficiency.get("contraction", efficiency["default"])
    for dtype, found in rates.items():
        peak[dtype] = median(found) / contraction
    return replace(
        device,
        peak_flops_per_second=tuple(sorted(peak.items())),
        memory_bandwidth_bytes_per_second=_upper_quartile(bandwidths)
        if bandwidths
        else device.memory_bandwidth_bytes_per_second,
        operator_overhead_seconds=dispatch / 1e9,
    )


def _usual(measured: list[MeasuredOperator]) -> MeasuredOperator:
    """Of what was measured several times the medians; of two the faster one."""
    return replace(
        measured[0],
        forward_nanoseconds=median_low(each.forward_nanoseconds for each in measured),
        backward_nanoseconds=median_low(each.backward_nanoseconds for each in measured),
    )


def _upper_quartile(values: list[float]) -> float:
    return sorted(values)[3 * len(values) // 4]


def _distance(measured: OperatorWork, wanted: OperatorWork) -> tuple[float, Key]:
    sizes = abs(log((measured.flops + 1) / (wanted.flops + 1)))
    sizes += abs(log((measured.bytes + 1) / (wanted.bytes + 1)))
    unlike = int(measured.attributes != wanted.attributes)
    unlike += measured.differentiated_inputs != wanted.differentiated_inputs
    return sizes + _UNLIKE * unlike, tuple(map(repr, work_key(measured)))  # ties: a fixed order


def _kernel(device: Device, work: OperatorWork) -> float:
    """Seconds of the kernel itself, to divide by."""
    return max(kernel_seconds(device, work), 1e-12)


def _grown(nanoseconds: int, ratio: float, overhead: int) -> int:
    """A time at another size, of which the overhead stays as it is."""
    fixed = min(nanoseconds, overhead)
    return max(1, round(fixed + (nanoseconds - fixed) * ratio))
