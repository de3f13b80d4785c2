"""The device mesh as a list of atomic axes, slowest link first (TensorOpt, section 2.1)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tensoropt.errors import LayoutError

__all__ = ["Mesh", "prime_factors"]


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


@dataclass(frozen=True, slots=True)
class Mesh:
    """N devices, numbered row-major over ``axes``: the first axis has the largest stride.

    Attributes:
        axes: size of each atomic axis, slowest link first. Their product is the number of devices.
    """

    axes: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(size < 2 for size in self.axes):
            raise LayoutError(f"every mesh axis has at least 2 devices. Got axes {self.axes}.")

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
