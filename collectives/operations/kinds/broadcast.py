"""broadcast: every member gets one member's array."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.buffers import Array, as_bytes, check_movable, fresh, fresh_copy
from collectives.errors import GroupError
from collectives.operations.operation import Finish
from collectives.transport import Transport

__all__ = ["Broadcast"]


@dataclass(frozen=True, slots=True)
class Broadcast:
    """The array of one member; the others give shape and dtype.

    Attributes:
        root: position of that member in the group.
    """

    root: int = 0

    def start(self, transport: Transport, array: Array) -> Finish:
        """See `Collective.start`.

        Raises:
            GroupError: if there is no such position.
            DTypeError: if the elements are Python objects.
        """
        size = len(transport.ranks)
        if not 0 <= self.root < size:
            raise GroupError(
                f"a root is a position in the group, from 0 to {size - 1}. Got {self.root}."
            )
        check_movable(array.dtype)
        is_root = self.root == transport.rank
        result = fresh_copy(array) if is_root else fresh(array.shape, array.dtype)
        if size > 1 and array.size > 0:
            transport.broadcast(as_bytes(result), self.root)
        return lambda: result
