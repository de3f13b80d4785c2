"""How long an operator takes on a described device: the roofline.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model" (2009): a
kernel takes as long as its arithmetic at the rate that its family reaches, or as its traffic at
the memory's bandwidth, whichever is longer; and then the time to start it. Where a device has
nothing to compute meanwhile, as a core that waits for its own loads, the two add up (the
execution-cache-memory model without overlap: Stengel, Treibig, Hager and Wellein, "Quantifying
performance bottlenecks of stencil computations using the ECM model", 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.cost.cluster import Device
from tensoropt.cost.collective_time import whole_nanoseconds
from tensoropt.errors import OptionError

__all__ = ["SPELLED_OUT", "OperatorTime", "OperatorWork", "kernel_seconds", "roofline_time"]

SPELLED_OUT = "spelled out"
"""Attribute of a work that is emitted as several operators: the split indices that it is for."""


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """What one device does of one operator under one configuration.

    Attributes:
        family: "contraction", "elementwise" or another; a cluster says which rate it reaches.
        dtype: TensorFlow's name of the element type, such as "float32".
        flops: of the local forward computation.
        bytes: read and written by it.
        differentiated_inputs: inputs for which the backward pass computes a gradient.
        operator: TensorFlow's operator type. This and what follows identifies a measurement; a
            cluster's description needs none of it.
        attributes: of the operator, name and printed value, sorted.
        local_shapes: of the inputs.
    """

    family: str
    dtype: str
    flops: int
    bytes: int
    differentiated_inputs: int = 0
    operator: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    local_shapes: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if min(self.flops, self.bytes, self.differentiated_inputs) < 0:
            raise OptionError(
                f"an operator's work is counted from 0. Got flops={self.flops}, "
                f"bytes={self.bytes}, differentiated_inputs={self.differentiated_inputs}."
            )


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Nanoseconds of an operator on one device: t_c of equation 1 (TensorOpt) is ``total``."""

    forward: int
    backward: int

    @property
    def total(self) -> int:
        """Forward and backward."""
        return self.forward + self.backward


def roofline_time(device: Device, work: OperatorWork) -> OperatorTime:
    """The time of an operator; a gradient with respect to one input costs what forward does.

    So it is, exactly, for contractions (two products of the forward's size for two inputs), and
    about so for operators that memory bounds.
    """
    seconds = device.operator_overhead_seconds + kernel_seconds(device, work)
    kernel = whole_nanoseconds(seconds)
    return OperatorTime(kernel, kernel * work.differentiated_inputs)


def kernel_seconds(device: Device, work: OperatorWork) -> float:
    """Of the forward kernel itself, without starting it."""
    arithmetic = work.flops / device.flops_per_second(work.family, work.dtype)
    traffic = work.bytes / device.memory_bandwidth_bytes_per_second
    return max(arithmetic, traffic) if device.overlaps_traffic else arithmetic + traffic
