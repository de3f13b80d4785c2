"""The time of an operator on a described device: the roofline model.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model" (2009): a
kernel takes the longer of two times, its arithmetic at the rate that its family reaches, and its
traffic at the bandwidth of the memory. The time to start it is added. On a device that does not
compute while it waits for memory, the two times are added, too (the execution-cache-memory model
without overlap: Stengel, Treibig, Hager and Wellein, "Quantifying performance bottlenecks of
stencil computations using the ECM model", 2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tensoropt.converters import Natural, Pairs
from tensoropt.cost.cluster import Device
from tensoropt.cost.collective_time import whole_nanoseconds
from tensoropt.errors import OptionError
from tensoropt.graph.operator import Operator
from tensoropt.parallel.configuration import Configuration
from tensoropt.tdl import Derivation

__all__ = [
    "SPELLED_OUT",
    "LocalOperator",
    "OperatorTime",
    "OperatorWork",
    "WorkOfRank",
    "kernel_seconds",
    "roofline_time",
]

SPELLED_OUT = "spelled out"
"""Attribute of the work of an operator that a lowering rule emits as several operators. Its value
names the split indices."""


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """The work of one device for one operator under one configuration.

    Attributes:
        family: "contraction", "elementwise" or another family that the cluster has a rate for.
        dtype: TensorFlow's name of the element type, such as "float32".
        flops: arithmetic operations of the local forward computation.
        bytes: bytes that it reads and writes.
        differentiated_inputs: number of inputs whose gradient the backward pass computes.
        operator: TensorFlow's operator type. This field and the next two identify a measurement;
            they are not needed for the roofline.
        attributes: sorted pairs of the name and printed value of the operator's attributes.
        local_shapes: local shapes of the inputs.
    """

    family: str
    dtype: str
    flops: Natural
    bytes: Natural
    differentiated_inputs: Natural = 0
    operator: str = ""
    attributes: Annotated[tuple[tuple[str, str], ...], Pairs(sorted)] = ()
    local_shapes: tuple[tuple[Natural, ...], ...] = ()

    def __post_init__(self) -> None:
        if min(self.flops, self.bytes, self.differentiated_inputs) < 0:
            raise OptionError(
                f"the amounts of an operator's work are at least 0. Got flops={self.flops}, "
                f"bytes={self.bytes}, differentiated_inputs={self.differentiated_inputs}."
            )


@dataclass(frozen=True, slots=True)
class WorkOfRank(OperatorWork):
    """The work of the device that ends last, where pieces are in proportion to speeds.

    Attributes:
        rank: the device.
    """

    rank: Natural = 0


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Nanoseconds of an operator on one device. ``total`` is t_c of equation 1 (TensorOpt)."""

    forward: int
    backward: int

    @property
    def total(self) -> int:
        """The time of forward and backward together."""
        return self.forward + self.backward

    def at_speed(self, speed: float) -> OperatorTime:
        """Return the time on a device of another relative speed."""
        if speed == 1:
            return self
        return OperatorTime(max(1, round(self.forward / speed)), round(self.backward / speed))


def roofline_time(device: Device, work: OperatorWork) -> OperatorTime:
    """Return the roofline time. The gradient by one input costs as much as forward.

    This is exact for contractions: the gradients by two inputs are two products of the forward's
    size. It is approximate for operators that are limited by memory bandwidth.
    """
    seconds = device.operator_overhead_seconds + kernel_seconds(device, work)
    kernel = whole_nanoseconds(seconds)
    return OperatorTime(kernel, kernel * work.differentiated_inputs)


def kernel_seconds(device: Device, work: OperatorWork) -> float:
    """Return the seconds of the forward kernel, without the time to start it."""
    arithmetic = work.flops / device.flops_per_second(work.family, work.dtype)
    traffic = work.bytes / device.memory_bandwidth_bytes_per_second
    return max(arithmetic, traffic) if device.overlaps_traffic else arithmetic + traffic


@dataclass(frozen=True, slots=True, eq=False)
class LocalOperator:
    """One operator of a script under one configuration, and the gradients that it computes.

    Attributes:
        operator: the operator in the logical graph.
        derivation: its derivation.
        configuration: how it is split.
        differentiated: the inputs whose gradient is computed.
        work: the work that its time is looked up by.
    """

    operator: Operator
    derivation: Derivation
    configuration: Configuration
    differentiated: tuple[int, ...]
    work: OperatorWork
