"""alltoall: every member gets its shard of every member's array, concatenated."""

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
    split,
)
from collectives.operations.operation import Finish
from collectives.transport import Transport

__all__ = ["Alltoall"]


@dataclass(frozen=True, slots=True)
class Alltoall:
    """This member's shard along one dimension of every array, concatenated along another.

    Attributes:
        split_dim: part i along it goes to position i of the group; negative counts from the end.
        concat_dim: the parts received are concatenated along it in the group's order.
    """

    split_dim: int
    concat_dim: int

    def start(self, transport: Transport, array: Array) -> Finish:
        """See `Collective.start`.

        Raises:
            ShapeError: if there is no such dimension, or ``split_dim`` does not divide.
            DTypeError: if the elements are Python objects.
        """
        size = len(transport.ranks)
        parts = split(array, dimension(self.split_dim, array.ndim), size)
        concat_dim = dimension(self.concat_dim, array.ndim)
        check_movable(array.dtype)
        if size == 1 or array.size == 0:
            return partial(concatenated_alone, parts[0], concat_dim, size)
        received = fresh(parts.shape, array.dtype)
        transport.alltoall(as_bytes(contiguous(parts)), as_bytes(received))
        return partial(join, received, concat_dim)
