"""The ranges of a sharded dimension that the members of a group get from an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collectives.errors import ShapeError

__all__ = ["MemberWindows"]


@dataclass(frozen=True, slots=True)
class MemberWindows:
    """Member i holds elements [i * extent, (i + 1) * extent) and sees a window of the whole.

    Windows may overlap, leave elements out, and reach beyond both ends.

    Attributes:
        starts: per member the first element of its window; negative where the window begins before
            the first element of the dimension.
        length: elements of every window.
        extent: elements of every shard.

    Raises:
        ShapeError: if a length or an extent is negative.
    """

    starts: tuple[int, ...]
    length: int
    extent: int

    def __post_init__(self) -> None:
        if self.length < 0 or self.extent < 0:
            raise ShapeError(
                "a window and a shard have at least 0 elements. Got a length of "
                f"{self.length} and an extent of {self.extent}."
            )

    @classmethod
    def of_group(cls, starts: Sequence[int], length: int, extent: int, size: int) -> MemberWindows:
        """The windows of a group of ``size`` members.

        Raises:
            ShapeError: if there is not one start per member.
        """
        if len(starts) != size:
            raise ShapeError(
                f"an exchange has a window per member of the group. Got {len(starts)} starts "
                f"for {size} ranks."
            )
        return cls(tuple(int(start) for start in starts), int(length), int(extent))

    @property
    def crosses(self) -> bool:
        """Whether the window of any member has an element of another member's shard."""
        members = range(len(self.starts))
        return any(
            len(self.overlap(window, shard))
            for window in members
            for shard in members
            if window != shard
        )

    def overlap(self, window: int, shard: int) -> range:
        """The elements in both a window and a shard, as indices of the whole dimension."""
        start, own = self.starts[window], shard * self.extent
        return range(max(start, own), min(start + self.length, own + self.extent))

    def in_window(self, window: int, shard: int) -> slice:
        """The elements of `overlap`, as a slice of the window; empty if there are none."""
        return _shifted(self.overlap(window, shard), self.starts[window])

    def in_shard(self, window: int, shard: int) -> slice:
        """The elements of `overlap`, as a slice of the shard; empty if there are none."""
        return _shifted(self.overlap(window, shard), shard * self.extent)

    def outside(self, window: int) -> tuple[int, int]:
        """The numbers of elements of a window before the dimension's first, and after its last."""
        start = self.starts[window]
        stop = start + self.length
        whole = len(self.starts) * self.extent
        return min(self.length, max(0, -start)), min(self.length, max(0, stop - whole))


def _shifted(elements: range, origin: int) -> slice:
    if not len(elements):
        return slice(0, 0)
    return slice(elements.start - origin, elements.stop - origin)
