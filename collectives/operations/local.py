"""What a member does to its own array or tensor alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collectives.operations.operation import Elements

__all__ = ["Cut", "Mask", "Pad", "Reshape", "Slice"]


@dataclass(frozen=True, slots=True)
class Slice:
    """The member's shard along a dimension.

    Attributes:
        dim: the dimension, counted from the front; its size divides by the group's.
    """

    dim: int

    def apply(self, x: Any, place: int, size: int, elements: Elements) -> Any:
        """See `Local.apply`."""
        extent = elements.extent(x, self.dim) // size
        return elements.part(x, self.dim, slice(place * extent, (place + 1) * extent))


@dataclass(frozen=True, slots=True)
class Mask:
    """The value on the first member; on the others one that leaves a reduction as it is.

    Of a tensor each member's is made by one operator that reads it: which operators lie between
    decides in which order TensorFlow takes gradients, and so the order of their collectives.

    Attributes:
        reducer: sum or prod; with max and min the value itself does, on every member.
    """

    reducer: str

    def apply(self, x: Any, place: int, size: int, elements: Elements) -> Any:
        """See `Local.apply`."""
        del size
        if self.reducer in ("max", "min"):
            return x
        if place == 0:
            return elements.itself(x)
        return elements.zeros_like(x) if self.reducer == "sum" else elements.ones_like(x)


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements in another shape.

    Attributes:
        shape: as many elements.
    """

    shape: tuple[int, ...]

    def apply(self, x: Any, place: int, size: int, elements: Elements) -> Any:
        """See `Local.apply`."""
        del place, size
        return elements.reshaped(x, self.shape)


@dataclass(frozen=True, slots=True)
class Pad:
    """Zeros behind the last elements along a dimension.

    Attributes:
        dim: the dimension, counted from the front.
        extent: after it.
    """

    dim: int
    extent: int

    def apply(self, x: Any, place: int, size: int, elements: Elements) -> Any:
        """See `Local.apply`."""
        del place, size
        return elements.padded(x, self.dim, 0, self.extent)


@dataclass(frozen=True, slots=True)
class Cut:
    """The first elements along a dimension.

    Attributes:
        dim: the dimension, counted from the front.
        extent: after it.
    """

    dim: int
    extent: int

    def apply(self, x: Any, place: int, size: int, elements: Elements) -> Any:
        """See `Local.apply`."""
        del place, size
        return elements.part(x, self.dim, slice(0, self.extent))
