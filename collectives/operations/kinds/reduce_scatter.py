"""reduce_scatter: every member gets its shard of the reduction of every member's array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from collectives.buffers import Array, contiguous, dimension, fresh, fresh_copy, split
from collectives.operations.operation import Finish
from collectives.reduction import restored, wire
from collectives.transport import Transport

__all__ = ["ReduceScatter"]


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """This member's shard, along a dimension, of what `Allreduce` returns.

    Attributes:
        dim: the dimension; negative counts from the end.
        reducer: sum, max, min or prod.
    """

    dim: int = 0
    reducer: str = "sum"

    def start(self, transport: Transport, array: Array) -> Finish:
        """See `Collective.start`.

        Raises:
            ShapeError: if there is no such dimension, or it does not divide by the group's size.
            ReducerError: if the reducer is unknown.
            DTypeError: if the elements do not reduce with it.
        """
        way = wire(array.dtype, self.reducer)
        shards = split(array, dimension(self.dim, array.ndim), len(transport.ranks))
        if len(transport.ranks) == 1 or array.size == 0:
            return partial(fresh_copy, shards[0])
        send = contiguous(shards, way.dtype)
        result = fresh(shards.shape[1:], way.dtype)
        transport.reduce_scatter(send.reshape(-1), result.reshape(-1), way.reducer)
        return partial(restored, result, array.dtype)
