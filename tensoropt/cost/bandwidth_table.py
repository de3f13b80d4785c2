"""Measured times of one collective over one device partition, interpolated between sizes.

TensorOpt, section 3.2: under each device partitioning the actual bandwidth is measured at sizes
2^i, all groups at once; between two sizes the bandwidth is interpolated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tensoropt.errors import OptionError, PlanError

__all__ = ["BandwidthTable"]


@dataclass(frozen=True, slots=True)
class BandwidthTable:
    """How long a collective took on every group along some axes of a mesh.

    Attributes:
        kind: the collective, one of `tensoropt.cost.collective_time.COLLECTIVES`.
        mesh: sizes of the axes of the whole mesh.
        axes: the mesh axes of the groups, ascending.
        bytes: that a device holds before, ascending.
        nanoseconds: measured at each.

    Raises:
        PlanError: if a rule is broken.
    """

    kind: str
    mesh: tuple[int, ...]
    axes: tuple[int, ...]
    bytes: tuple[int, ...]
    nanoseconds: tuple[int, ...]

    def __post_init__(self) -> None:
        where = f"the times of {self.kind} over axes {list(self.axes)} of {list(self.mesh)}"
        ascending = all(a < b for a, b in zip(self.bytes, self.bytes[1:], strict=False))
        if not self.bytes or len(self.bytes) != len(self.nanoseconds) or not ascending:
            raise PlanError(
                f"{where} have one time per size, sizes ascending. Got {len(self.bytes)} sizes "
                f"and {len(self.nanoseconds)} times."
            )
        values = (*self.bytes, *self.nanoseconds)
        if min(values) < 1 or max(values) >= 2**63:
            raise PlanError(f"{where} are positive and fit 64 bits. Got one below 1 or above.")
        if list(self.axes) != sorted(set(self.axes)) or not set(self.axes) <= set(
            range(len(self.mesh))
        ):
            raise PlanError(f"{where} are of different axes of the mesh, ascending.")

    def nanoseconds_of(self, bytes_: int) -> float:
        """Time for any size: its bandwidth lies on the line between its two neighbours'.

        Below the smallest size the time is the smallest's, since latency is all of it; beyond the
        largest (`extrapolates`) the bandwidth is the largest's.

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
        """Whether a size is beyond what was measured."""
        return bytes_ > self.bytes[-1]

    def to_json(self) -> dict[str, Any]:
        """The table as JSON values."""
        return {key: list(v) if key != "kind" else v for key, v in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> BandwidthTable:
        """The inverse of `to_json`."""
        fields: dict[str, Any] = {k: tuple(v) if k != "kind" else v for k, v in values.items()}
        return cls(**fields)
