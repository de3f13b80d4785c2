"""Operations of one member on its own array or tensor, without communication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collectives.operations.operation import Elements

__all__ = ["Cut", "Mask", "Pad", "Reshape", "Select", "Slice"]


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
class Select:
    """Some elements along a dimension: those of several ranges, one range after another.

    It is one TensorFlow operator on every member, whatever the ranges; see `Mask`.

    Attributes:
        dim: the dimension, counted from the front.
        ranges: for each member the ranges, each with a start and a stop.
    """

    dim: int
    ranges: tuple[tuple[tuple[int, int], ...], ...]

    def apply(self, x: Any, place: int, size: int, elements: Elements) -> Any:
        """See `Local.apply`."""
        del size
        return elements.selected(x, self.dim, self.ranges[place])


@dataclass(frozen=True, slots=True)
class Mask:
    """The value on the first member, and the reducer's neutral element on the other members.

    On every member exactly one operator reads the tensor. The operators on the path decide in which
    order TensorFlow builds gradients, and so the order of the gradients' collectives.

    Attributes:
        reducer: sum or prod; for max and min every member keeps the value itself.
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
        shape: the new shape, with the same number of elements.
    """

    shape: tuple[int, ...]

    def apply(self, x: Any, place: int, size: int, elements: Elements) -> Any:
        """See `Local.apply`."""
        del place, size
        return elements.reshaped(x, self.shape)


@dataclass(frozen=True, slots=True)
class Pad:
    """Append zeros along a dimension.

    Attributes:
        dim: the dimension, counted from the front.
        extent: size of the dimension in the result.
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
        extent: size of the dimension in the result.
    """

    dim: int
    extent: int

    def apply(self, x: Any, place: int, size: int, elements: Elements) -> Any:
        """See `Local.apply`."""
        del place, size
        return elements.part(x, self.dim, slice(0, self.extent))
