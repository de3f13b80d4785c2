"""Messages: what one member sends another, which receives it."""

from __future__ import annotations

import numpy as np

from collectives.buffers import Array, as_bytes, check_movable, fresh, fresh_copy
from collectives.errors import GroupError
from collectives.transport import Transport

__all__ = ["receive", "send"]


def send(transport: Transport, array: Array, target: int, tag: int) -> None:
    """Send an array, whose receiver knows shape and dtype; a copy, without waiting for anybody.

    Args:
        transport: between the members.
        array: of any dtype whose elements have bytes; half precision travels as it is.
        target: position of the receiver in the group.
        tag: tells messages apart that are received in another order than they are sent in.

    Raises:
        GroupError: if the target is this member, or none.
        DTypeError: if the elements are Python objects.
    """
    _check(transport, target)
    check_movable(array.dtype)
    transport.send(as_bytes(fresh_copy(array)), target, tag)


def receive(
    transport: Transport, shape: tuple[int, ...], dtype: np.dtype[np.generic], source: int, tag: int
) -> Array:
    """Wait for the first message of a member with a tag that is not received yet.

    Args:
        transport: between the members.
        shape, dtype: of the array that was sent.
        source: position of the sender in the group.
        tag: the sender's.

    Raises:
        GroupError: if the source is this member, or none.
        DTypeError: if the elements are Python objects.
    """
    _check(transport, source)
    check_movable(dtype)
    result = fresh(shape, dtype)
    transport.receive(as_bytes(result), source, tag)
    return result


def _check(transport: Transport, other: int) -> None:
    size = len(transport.ranks)
    if not 0 <= other < size or other == transport.rank:
        raise GroupError(
            "a message goes from one member of a group to another, by positions from 0 to "
            f"{size - 1}. Got {other} on position {transport.rank}."
        )
