"""allgather: every member gets every member's array, concatenated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from collectives.buffers import (
    Array,
    as_bytes,
    check_movable,
    concatenated_alone,
    contiguous,
    dimension,
    fresh,
    join,
)
from collectives.operations.operation import Finish
from collectives.transport import Transport

__all__ = ["Allgather"]


@dataclass(frozen=True, slots=True)
class Allgather:
    """Every member's array, concatenated along a dimension in the group's order.

    Attributes:
        dim: the dimension; negative counts from the end.
    """

    dim: int = 0

    def start(self, transport: Transport, array: Array) -> Finish:
        """See `Collective.start`.

        Raises:
            ShapeError: if there is no such dimension.
            DTypeError: if the elements are Python objects.
        """
        dim, size = dimension(self.dim, array.ndim), len(transport.ranks)
        check_movable(array.dtype)
        if size == 1 or array.size == 0:
            return partial(concatenated_alone, array, dim, size)
        shards = fresh((size, *array.shape), array.dtype)
        transport.allgather(as_bytes(contiguous(array)), as_bytes(shards))
        return partial(join, shards, dim)
