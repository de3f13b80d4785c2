"""allreduce: every member gets the reduction of every member's array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from collectives.buffers import Array, contiguous, fresh, fresh_copy
from collectives.operations.operation import Finish
from collectives.reduction import restored, wire
from collectives.transport import Transport

__all__ = ["Allreduce"]


@dataclass(frozen=True, slots=True)
class Allreduce:
    """The element-by-element reduction of every member's array; same shape and dtype.

    Half precision is reduced in float32; of booleans sum and max are logical or, min and prod
    logical and.

    Attributes:
        reducer: sum, max, min or prod.
        as_bfloat16: whether float32 travels between machines as bfloat16. Sums are float32, and all
            members get the same bits. MPI and Horovod do not round.
    """

    reducer: str = "sum"
    as_bfloat16: bool = False

    def start(self, transport: Transport, array: Array) -> Finish:
        """See `Collective.start`.

        Raises:
            ReducerError: if the reducer is unknown.
            DTypeError: if the elements do not reduce with it.
        """
        way = wire(array.dtype, self.reducer)
        if len(transport.ranks) == 1 or array.size == 0:
            return partial(fresh_copy, array)
        result = fresh(array.shape, way.dtype)
        send = contiguous(array, way.dtype)
        transport.allreduce(send.reshape(-1), result.reshape(-1), way.reducer)
        return partial(restored, result, array.dtype)
