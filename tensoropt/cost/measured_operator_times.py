"""Times of operators from measured ones: the same work, or scaled from the nearest of its type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log
from statistics import median, median_low
from typing import Annotated

from annotated_types import Ge

from tensoropt.converters import Form, Natural, Number, Positive
from tensoropt.cost.cluster import Device
from tensoropt.cost.operator_time import (
    OperatorTime,
    OperatorWork,
    kernel_seconds,
    roofline_time,
)

__all__ = ["FlatMeasuredOperator", "MeasuredOperator", "OperatorTimes", "calibrated", "work_key"]

_ATTRIBUTES_DISTANCE = 1.0
"""Distance of two works with different attributes: as much as a factor e in size."""
_LARGE_NANOSECONDS = 50_000
"""Time from which the rate of a kernel can be measured. Shorter kernels are dominated by their
start."""

Key = tuple[object, ...]


def work_key(work: OperatorWork) -> Key:
    """Return a key that is equal for works with the same time.

    It has the bytes because they may depend on the value of an operand, such as the shape of a
    Fill.
    """
    shapes = work.local_shapes
    return (
        *(work.operator, work.attributes, work.dtype),
        *(shapes, work.differentiated_inputs, work.bytes),
    )


@dataclass(frozen=True, slots=True)
class MeasuredOperator:
    """One operator with one set of local shapes, timed while all ranks timed the same.

    Attributes:
        work: the work of the operator.
        forward_nanoseconds: time of its kernel, started by TensorFlow's executor.
        backward_nanoseconds: time of its gradients by the differentiated inputs.
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
        """The measured time."""
        return OperatorTime(self.forward_nanoseconds, self.backward_nanoseconds)

    def scaled(self, factor: float) -> MeasuredOperator:
        """Return the measurement with its times multiplied by a factor."""
        return replace(
            self,
            forward_nanoseconds=max(1, round(self.forward_nanoseconds * factor)),
            backward_nanoseconds=round(self.backward_nanoseconds * factor),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flat(OperatorWork):
    """A measured operator in a file: its work and its times in one object."""

    forward_nanoseconds: Positive
    backward_nanoseconds: Natural
    spread: Annotated[Number, Ge(0)]
    outliers: Natural

    @classmethod
    def of(cls, measured: MeasuredOperator) -> _Flat:
        """The object of a measured operator."""
        fields = {name: getattr(measured, name) for name in MeasuredOperator.__slots__}
        work = fields.pop("work")
        return cls(**{name: getattr(work, name) for name in OperatorWork.__slots__}, **fields)

    def measured(self) -> MeasuredOperator:
        """The inverse of `of`."""
        work = OperatorWork(*(getattr(self, name) for name in OperatorWork.__slots__))
        fields = (getattr(self, name) for name in MeasuredOperator.__slots__ if name != "work")
        return MeasuredOperator(work, *fields)


FlatMeasuredOperator = Annotated[MeasuredOperator, Form(_Flat, _Flat.measured, _Flat.of)]
"""The type of a field with a measured operator that a file has as one object."""


class OperatorTimes:
    """The time of any operator, from measured operators.

    Args:
        measured: the measurements. Of several for one work the median counts.
        device: the device whose rates scale a measurement to another size, see `calibrated`.
        rereading: nanoseconds per byte that a kernel reads and writes beyond the scaled bytes of
            the nearest measurement. An example is a weight, which each part of a batch reads whole.
    """

    __slots__ = ("_by_key", "_by_type", "_device", "_rereading", "_times")

    def __init__(
        self, measured: Iterable[MeasuredOperator], device: Device, rereading: float = 0.0
    ) -> None:
        self._device, self._rereading = device, rereading
        by_key: dict[Key, list[MeasuredOperator]] = {}
        for each in measured:
            by_key.setdefault(work_key(each.work), []).append(each)
        self._by_key = {key: _median(repeated) for key, repeated in by_key.items()}
        self._by_type: dict[tuple[str, str], list[MeasuredOperator]] = {}
        for each in self._by_key.values():
            self._by_type.setdefault((each.work.operator, each.work.dtype), []).append(each)
        self._times: dict[OperatorWork, OperatorTime] = {}

    def __contains__(self, work: OperatorWork) -> bool:
        return work_key(work) in self._by_key

    def time(self, work: OperatorWork) -> OperatorTime:
        """Return the time of a work.

        It is the measured time of the same work. Otherwise it is the time of the nearest
        measurement of the operator's type, scaled by the ratio of rooflines. Types without a
        measurement take the roofline time.
        """
        time = self._times.get(work)
        if time is None:
            exact = self._by_key.get(work_key(work))
            time = exact.time if exact is not None else self._scaled(work)
            self._times[work] = time
        return time

    def _scaled(self, work: OperatorWork) -> OperatorTime:
        same_type = self._by_type.get((work.operator, work.dtype))
        if not same_type:
            return roofline_time(self._device, work)
        nearest = min(same_type, key=lambda each: _distance(each.work, work))
        overhead = round(self._device.operator_overhead_seconds * 1e9)
        wanted = replace(work, differentiated_inputs=1)
        measured = replace(nearest.work, differentiated_inputs=1)
        ratio = _kernel(self._device, wanted) / _kernel(self._device, measured)
        rereading = round(self._rereading * max(0.0, work.bytes - ratio * nearest.work.bytes))
        forward = rereading + _scaled_nanoseconds(nearest.forward_nanoseconds, ratio, overhead)
        inputs, measured_inputs = work.differentiated_inputs, nearest.work.differentiated_inputs
        if inputs == 0:
            return OperatorTime(forward, 0)
        if measured_inputs == 0:
            return OperatorTime(forward, forward * inputs)
        backward = nearest.backward_nanoseconds * inputs // measured_inputs
        backward = _scaled_nanoseconds(backward, ratio, overhead)
        return OperatorTime(forward, inputs * rereading + backward)


def calibrated(device: Device, measured: Iterable[MeasuredOperator], dispatch: int) -> Device:
    """Return a device with the rates that measured operators reached.

    The arithmetic rate of a dtype is the median over large contractions. The memory bandwidth is
    the upper quartile over other large operators, since the slower ones also compute.

    Args:
        device: the device whose other figures stay.
        measured: the measurements.
        dispatch: nanoseconds to start an operator.
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
    for dtype, reached in rates.items():
        peak[dtype] = median(reached) / contraction
    return replace(
        device,
        peak_flops_per_second=tuple(sorted(peak.items())),
        memory_bandwidth_bytes_per_second=_upper_quartile(bandwidths)
        if bandwidths
        else device.memory_bandwidth_bytes_per_second,
        operator_overhead_seconds=dispatch / 1e9,
    )


def _median(measured: list[MeasuredOperator]) -> MeasuredOperator:
    """Return the medians of repeated measurements. Of two middle times the smaller counts."""
    return replace(
        measured[0],
        forward_nanoseconds=median_low(each.forward_nanoseconds for each in measured),
        backward_nanoseconds=median_low(each.backward_nanoseconds for each in measured),
    )


def _upper_quartile(values: list[float]) -> float:
    return sorted(values)[3 * len(values) // 4]


def _distance(measured: OperatorWork, wanted: OperatorWork) -> tuple[float, Key]:
    """Return the distance of two works, with a key that breaks ties."""
    sizes = abs(log((measured.flops + 1) / (wanted.flops + 1)))
    sizes += abs(log((measured.bytes + 1) / (wanted.bytes + 1)))
    differences = int(measured.attributes != wanted.attributes)
    differences += measured.differentiated_inputs != wanted.differentiated_inputs
    return sizes + _ATTRIBUTES_DISTANCE * differences, tuple(map(repr, work_key(measured)))


def _kernel(device: Device, work: OperatorWork) -> float:
    """Return the seconds of the kernel itself, above 0 so that one can divide by them."""
    return max(kernel_seconds(device, work), 1e-12)


def _scaled_nanoseconds(nanoseconds: int, ratio: float, overhead: int) -> int:
    """Return a time at another size. The part that is overhead stays the same."""
    fixed = min(nanoseconds, overhead)
    return max(1, round(fixed + (nanoseconds - fixed) * ratio))
