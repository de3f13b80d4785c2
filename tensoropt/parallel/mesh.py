"""The device mesh as a list of atomic axes, slowest link first (TensorOpt, section 2.1).

A dimension of n elements may be split into k <= n pieces that k does not divide n into. The major
axis cuts the dimension, and each further axis cuts every piece. Pieces then have floor(n / k) or
ceil(n / k) elements, in any order of axes, and none is empty. Device 0 has a largest piece.

On devices of different speeds, chosen dimensions are cut in proportion to speed (`Shares`). An axis
cuts a piece by the speeds of the devices behind each of its coordinates. In either way pieces nest:
an all-gather over the minor axes of a dimension gives the pieces of the major axes.

Chosen extents have a unit: their pieces begin at multiples of it. A dimension of n blocks of u
elements is cut as one of n elements is. So a batch joined with another dimension, ``batch *
length`` with the unit ``length``, falls into the pieces of the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Annotated

import numpy as np
from annotated_types import Ge, Len

from tensoropt.arrays import Int64Array
from tensoropt.errors import LayoutError

__all__ = ["Mesh", "Shares", "Units", "levels_of_axes", "piece_bounds", "prime_factors"]


def prime_factors(number: int) -> tuple[int, ...]:
    """Return the prime factors in ascending order: (2, 2, 3) for 12, () for 1."""
    if number < 1:
        raise LayoutError(f"a number of devices is at least 1. Got {number}.")
    factors = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    if number > 1:
        factors.append(number)
    return tuple(factors)


def levels_of_axes(axes: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    """Return the number of the level of links that each mesh axis belongs to.

    Args:
        axes: sizes of mesh axes, slowest link first.
        counts: groups of each level, the outermost first; their product is that of the axes.
    """
    levels, level, reached = [], 0, 1
    for size in axes:
        while reached >= counts[level] and level < len(counts) - 1:
            level, reached = level + 1, 1
        levels.append(level)
        reached *= size
    return tuple(levels)


def piece_bounds(extent: int, sizes: Sequence[int], places: Sequence[int]) -> tuple[int, int]:
    """Return where a piece of a dimension begins and ends that is cut as evenly as possible.

    Each cut gives the first pieces one element more than the others if it is uneven.

    Args:
        extent: the number of elements of the dimension.
        sizes: the sizes of the mesh axes that cut it, the major one first.
        places: the position of the piece along each of these axes.
    """
    start, length = 0, extent
    for size, place in zip(sizes, places, strict=True):
        quotient, rest = divmod(length, size)
        start += place * quotient + min(place, rest)
        length = quotient + (place < rest)
    return start, start + length


@dataclass(frozen=True, slots=True)
class Shares:
    """Pieces in proportion to the speeds of devices.

    Attributes:
        speeds: the relative speed of each device.
        extents: the extents of the dimensions that are cut in proportion; others are cut evenly.

    Raises:
        LayoutError: if a speed is not positive.
    """

    speeds: Annotated[tuple[Annotated[int, Ge(1)], ...], Len(2)]
    extents: tuple[Annotated[int, Ge(2)], ...]

    def __post_init__(self) -> None:
        if min(self.speeds, default=1) < 1:
            raise LayoutError(f"a device's speed is at least 1. Got speeds {list(self.speeds)}.")


Units = tuple[tuple[Annotated[int, Ge(2)], Annotated[int, Ge(2)]], ...]
"""The extents whose pieces begin at multiples of a unit, and their units (`Mesh.units`)."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """N devices, numbered row-major over ``axes``: the first axis has the largest stride.

    Attributes:
        axes: size of each atomic axis, slowest link first. Their product is the number of devices.
        shares: the speeds of its devices, if dimensions are cut in proportion to them.
        units: (extent, unit) of the dimensions whose pieces begin at multiples of a unit, sorted.
            Each extent is larger than the number of devices, and its number of units has no unit.
            So a search may put a number of pieces or of units in the place of an extent.

    Raises:
        LayoutError: if an axis has fewer than 2 devices, some devices have no speed, or a unit does
            not fit its extent.
    """

    axes: tuple[int, ...]
    shares: Shares | None = None
    units: Units = ()

    def __post_init__(self) -> None:
        if any(size < 2 for size in self.axes):
            raise LayoutError(f"every mesh axis has at least 2 devices. Got axes {self.axes}.")
        if self.shares is not None and len(self.shares.speeds) != self.size:
            raise LayoutError(
                f"every device has a speed. Got {len(self.shares.speeds)} speeds for the "
                f"{self.size} devices of mesh {self}."
            )
        extents = [extent for extent, _ in self.units]
        if sorted(set(extents)) != extents or any(
            unit < 2 or extent % unit or extent <= self.size or extent // unit in extents
            for extent, unit in self.units
        ):
            raise LayoutError(
                "extents with units are sorted, larger than the number of devices, and multiples "
                "of a unit of at least 2, and the multiple has no unit. Got "
                f"{list(self.units)} on mesh {self}."
            )

    @classmethod
    def of(cls, devices: int, levels: Sequence[int] = ()) -> Mesh:
        """Return the mesh of ``devices`` devices whose links form ``levels``, outermost first.

        ``levels`` has the count of each level, as (2, 8) for two machines of eight devices. Without
        levels there is one. Each level is divided into its prime factors.

        Raises:
            LayoutError: if the levels do not multiply to ``devices``.
        """
        levels = tuple(levels) or (devices,)
        if prod(levels) != devices:
            raise LayoutError(
                f"the levels of a mesh multiply to its number of devices. Got levels {levels} "
                f"for {devices} devices."
            )
        return cls(tuple(f for level in levels for f in prime_factors(level)))

    @property
    def size(self) -> int:
        """Number of devices."""
        return prod(self.axes)

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Return the position of a device along every axis.

        Raises:
            LayoutError: if there is no such device.
        """
        if not 0 <= rank < self.size:
            raise LayoutError(f"mesh {self} has devices 0 to {self.size - 1}. Got {rank}.")
        position = []
        for size in reversed(self.axes):
            rank, coordinate = divmod(rank, size)
            position.append(coordinate)
        return tuple(reversed(position))

    def rank(self, coordinates: Sequence[int]) -> int:
        """Return the device at a position: the inverse of `coordinates`.

        Raises:
            LayoutError: if the position lacks a coordinate, has too many, or one is out of range.
        """
        if len(coordinates) != len(self.axes) or not all(
            0 <= coordinate < size for size, coordinate in zip(self.axes, coordinates, strict=True)
        ):
            raise LayoutError(
                f"a position on mesh {self} has a coordinate from 0 to size - 1 for every axis. "
                f"Got {tuple(coordinates)}."
            )
        rank = 0
        for size, coordinate in zip(self.axes, coordinates, strict=True):
            rank = rank * size + coordinate
        return rank

    def pieces(self, axes: Sequence[int]) -> int:
        """Return the number of pieces of a dimension that these axes split."""
        return prod(self.axes[axis] for axis in axes)

    def piece(self, rank: int, axes: Sequence[int]) -> int:
        """Return the piece that a device holds of a dimension split by ``axes``, the major one
        first."""
        position = self.coordinates(rank)
        index = 0
        for axis in axes:
            index = index * self.axes[axis] + position[axis]
        return index

    def unit(self, extent: int) -> int:
        """Return the number of elements at whose multiples pieces of a dimension begin."""
        for known, unit in self.units:
            if known == extent:
                return unit
        return 1

    def blocks(self, extent: int) -> int:
        """Return how many units a dimension has: the extent that the mesh cuts."""
        return extent // self.unit(extent) if self.units else extent

    def is_shared(self, extent: int) -> bool:
        """Whether a dimension of this extent is cut in proportion to the speeds of devices."""
        return self.shares is not None and self.blocks(extent) in self.shares.extents

    def bounds(self, extent: int, axes: Sequence[int], rank: int) -> tuple[int, int]:
        """Return where the piece begins and ends that a device has of a dimension.

        Args:
            extent: the number of elements of the dimension.
            axes: the axes that split it, the major one first.
            rank: the device.
        """
        if axes and self.is_shared(extent):
            return _shared_bounds(self, extent, tuple(axes))[self.piece(rank, axes)]
        position, unit = self.coordinates(rank), self.unit(extent)
        sizes, places = [self.axes[a] for a in axes], [position[a] for a in axes]
        start, end = piece_bounds(extent // unit, sizes, places)
        return start * unit, end * unit

    def divides(self, extent: int, axes: Sequence[int]) -> bool:
        """Whether all pieces of a dimension that these axes split have the same extent."""
        if axes and self.is_shared(extent):
            return len(_shared_extents(self, extent, tuple(axes))) == 1
        return self.blocks(extent) % self.pieces(axes) == 0

    def extents(self, extent: int, axes: Sequence[int]) -> tuple[int, ...]:
        """Return the extent of the piece that each device has of a dimension, see `bounds`."""
        return _extents(self, extent, tuple(axes))

    def largest(self, extent: int, axes: Sequence[int]) -> int:
        """Return the extent of the largest piece of a dimension that these axes split."""
        if axes and self.is_shared(extent):
            return max(_shared_extents(self, extent, tuple(axes)))
        return -(-self.blocks(extent) // self.pieces(axes)) * self.unit(extent)

    def has_empty(self, extent: int, axes: Sequence[int]) -> bool:
        """Whether a piece of a dimension that is not empty has no element."""
        if axes and self.is_shared(extent):
            return 0 in _shared_extents(self, extent, tuple(axes))
        pieces, blocks = self.pieces(axes), self.blocks(extent)
        return blocks < pieces and blocks % pieces != 0

    def group(self, rank: int, axes: Sequence[int]) -> tuple[int, ...]:
        """Return the devices that differ from ``rank`` only along ``axes``, ordered by `piece`.

        Raises:
            LayoutError: if there is no such device or axis, or an axis is named twice.
        """
        if len(set(axes)) != len(axes) or not all(0 <= axis < len(self.axes) for axis in axes):
            raise LayoutError(
                f"a group runs along different axes of mesh {self}. Got {tuple(axes)}."
            )
        position = list(self.coordinates(rank))
        members = []
        for step in itertools.product(*(range(self.axes[axis]) for axis in axes)):
            for axis, coordinate in zip(axes, step, strict=True):
                position[axis] = coordinate
            members.append(self.rank(position))
        return tuple(members)

    def partition(self, axes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return all groups along ``axes``: the paper's device partitioning (section 3.2)."""
        return _partition(self, tuple(axes))

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))

    def __str__(self) -> str:
        return "[" + ",".join(map(str, self.axes)) + "]"


@lru_cache(maxsize=4096)
def _partition(mesh: Mesh, axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(dict.fromkeys(mesh.group(rank, axes) for rank in mesh))


@lru_cache(maxsize=65536)
def _shared_bounds(mesh: Mesh, extent: int, axes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return where each piece of a dimension begins and ends, in the order of `Mesh.piece`."""
    assert mesh.shares is not None, "the pieces are in proportion to speeds"
    speeds = np.array(mesh.shares.speeds, np.int64).reshape(mesh.axes)
    first = np.moveaxis(speeds, axes, range(len(axes)))
    weights = first.reshape(*(mesh.axes[axis] for axis in axes), -1).sum(axis=-1)
    unit = mesh.unit(extent)
    cut = _nested_bounds(0, extent // unit, weights)
    return tuple((start * unit, end * unit) for start, end in cut)


@lru_cache(maxsize=65536)
def _shared_extents(mesh: Mesh, extent: int, axes: tuple[int, ...]) -> frozenset[int]:
    """Return the extents that pieces of a dimension have."""
    return frozenset(end - start for start, end in _shared_bounds(mesh, extent, axes))


@lru_cache(maxsize=4096)
def _extents(mesh: Mesh, extent: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(end - start for start, end in (mesh.bounds(extent, axes, rank) for rank in mesh))


def _nested_bounds(start: int, length: int, weights: Int64Array) -> Iterator[tuple[int, int]]:
    """Cut a piece along the first dimension of ``weights``, and its pieces along the others."""
    if weights.ndim == 0:
        yield start, start + length
        return
    sums = weights.reshape(len(weights), -1).sum(axis=1).tolist()
    for inner, extent in zip(weights, _apportioned(length, sums), strict=True):
        yield from _nested_bounds(start, extent, inner)
        start += extent


def _apportioned(length: int, weights: Sequence[int]) -> list[int]:
    """Return whole numbers in proportion to weights, by largest remainders, that add up.

    Of equal remainders the first is rounded up. Each number is at least 1 if there are enough.
    """
    total = sum(weights)
    extents = [length * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda n: -(length * weights[n] % total))
    for n in by_remainder[: length - sum(extents)]:
        extents[n] += 1
    while 0 in extents and max(extents) > 1:
        extents[extents.index(max(extents))] -= 1
        extents[extents.index(0)] += 1
    return extents
