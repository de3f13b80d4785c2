"""The protocols of operations: collectives, which run in two halves, and local operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from collectives.buffers import Array
from collectives.transport import Transport

__all__ = ["Collective", "Elements", "Finish", "Local"]

Finish: TypeAlias = Callable[[], Array]
"""The second half of a collective, after `Transport.wait`: makes this member's result."""


class Collective(Protocol):
    """An operation of all members of a group, each with one array of the same shape and dtype.

    No collective writes to its input, which may be of any strides and of size zero. Each result is
    a fresh contiguous array that starts at a multiple of 64 bytes.
    """

    def start(self, transport: Transport, array: Array) -> Finish:
        """Check the array, arrange the bytes to send, and hand them to the transport."""


class Elements(Protocol):
    """The same functions on arrays and on tensors, so that a local operation is written once:
    `collectives.operations.arrays` and `collectives.operations.tensors`."""

    def extent(self, x: Any, dim: int) -> Any:
        """The size of a dimension."""

    def part(self, x: Any, dim: int, elements: slice) -> Any:
        """The elements of a slice along a dimension."""

    def selected(self, x: Any, dim: int, ranges: Sequence[tuple[int, int]]) -> Any:
        """The elements of ranges along a dimension; a tensor passes through one operator."""

    def padded(self, x: Any, dim: int, before: int, size: int, fill: float = 0) -> Any:
        """``x`` with ``before`` elements put before it, and as many after it as make ``size``."""

    def reshaped(self, x: Any, shape: tuple[int, ...]) -> Any:
        """The same elements in another shape."""

    def itself(self, x: Any) -> Any:
        """``x``; a tensor passes through an identity operator."""

    def zeros_like(self, x: Any) -> Any:
        """Zeros of the shape and dtype of ``x``."""

    def ones_like(self, x: Any) -> Any:
        """Ones of the shape and dtype of ``x``."""


class Local(Protocol):
    """An operation of one member on its own array or tensor, given its position in a group."""

    def apply(self, x: Any, place: int, size: int, elements: Elements) -> Any:
        """The result; it may be ``x`` itself or a view of it.

        Args:
            x: an array or a tensor.
            place: position of the member in the group.
            size: number of members of the group.
            elements: the functions for arrays, or for tensors.
        """
