"""Measured times of one collective over one device partitioning, interpolated between sizes.

TensorOpt, section 3.2: for each device partitioning the bandwidth is measured at sizes 2^i, while
all groups communicate at once. Between two sizes the bandwidth is interpolated.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Len

from tensoropt.converters import Natural, Positive, one_of
from tensoropt.errors import OptionError, PlanError

__all__ = ["BandwidthTable"]

_KINDS = (
    *("allgather", "allreduce", "alltoall", "broadcast", "exchange", "reduce_scatter"),
    *("allgather whole", "allgather long", "allgather short", "alltoall long", "alltoall short"),
    *("reduce_scatter whole", "reduce_scatter long", "reduce_scatter short"),
)
"""Collectives, and how their pieces lie in memory where that is measured."""


@dataclass(frozen=True, slots=True)
class BandwidthTable:
    """Times of a collective that ran on every group along some axes of a mesh at once.

    Attributes:
        kind: the collective, one of `tensoropt.cost.collective_time.COLLECTIVES`.
        mesh: sizes of the axes of the whole mesh.
        axes: the mesh axes of the groups, ascending.
        bytes: bytes that a device holds before the collective, ascending.
        nanoseconds: the measured time at each size.

    Raises:
        PlanError: if the sizes, times or axes do not fit together.
    """

    kind: Annotated[str, one_of(_KINDS)]
    mesh: tuple[Annotated[int, Ge(2)], ...]
    axes: Annotated[tuple[Natural, ...], Len(1)]
    bytes: Annotated[tuple[Positive, ...], Len(1)]
    nanoseconds: Annotated[tuple[Positive, ...], Len(1)]

    def __post_init__(self) -> None:
        table = f"the times of {self.kind} over axes {list(self.axes)} of {list(self.mesh)}"
        ascending = all(a < b for a, b in zip(self.bytes, self.bytes[1:], strict=False))
        if not self.bytes or len(self.bytes) != len(self.nanoseconds) or not ascending:
            raise PlanError(
                f"{table} have one time per size, with ascending sizes. Got {len(self.bytes)} "
                f"sizes and {len(self.nanoseconds)} times."
            )
        values = (*self.bytes, *self.nanoseconds)
        if min(values) < 1 or max(values) >= 2**63:
            raise PlanError(
                f"{table} are positive and fit in 64 bits. Got values from {min(values)} to "
                f"{max(values)}."
            )
        if list(self.axes) != sorted(set(self.axes)) or not set(self.axes) <= set(
            range(len(self.mesh))
        ):
            raise PlanError(f"{table} are of distinct axes of the mesh, in ascending order.")

    def nanoseconds_of(self, bytes_: int) -> float:
        """Return the time for any size.

        Between two measured sizes the bandwidth is interpolated linearly. Below the smallest size
        the time is that of the smallest, which is all latency. Above the largest size
        (`extrapolates`) the bandwidth is that of the largest.

        Raises:
            OptionError: if ``bytes_`` is negative.
        """
        if bytes_ < 0:
            raise OptionError(f"a collective moves a number of bytes. Got {bytes_}.")
        if bytes_ <= self.bytes[0]:
            return float(self.nanoseconds[0])
        above = bisect_right(self.bytes, bytes_)
        if above == len(self.bytes):
            return bytes_ * self.nanoseconds[-1] / self.bytes[-1]
        low, high = self.bytes[above - 1], self.bytes[above]
        slow, fast = low / self.nanoseconds[above - 1], high / self.nanoseconds[above]
        bandwidth = slow + (fast - slow) * (bytes_ - low) / (high - low)
        return bytes_ / bandwidth

    def extrapolates(self, bytes_: int) -> bool:
        """Whether a size is larger than all measured sizes."""
        return bytes_ > self.bytes[-1]
