"""Messages from one member of a group to another."""

from __future__ import annotations

import numpy as np

from collectives.buffers import Array, as_bytes, check_movable, fresh, fresh_copy
from collectives.errors import GroupError
from collectives.transport import Transport

__all__ = ["receive", "send"]


def send(transport: Transport, array: Array, target: int, tag: int) -> None:
    """Send a copy of an array without waiting. The receiver has to know its shape and dtype.

    Args:
        transport: between the members.
        array: of any dtype whose elements have bytes; half precision travels as it is.
        target: position of the receiver in the group.
        tag: identifies the message, where messages are received in another order than sent.

    Raises:
        GroupError: if the target is this member, or is no position in the group.
        DTypeError: if the elements are Python objects.
    """
    _check(transport, target)
    check_movable(array.dtype)
    transport.send(as_bytes(fresh_copy(array)), target, tag)


def receive(
    transport: Transport, shape: tuple[int, ...], dtype: np.dtype[np.generic], source: int, tag: int
) -> Array:
    """Wait for a member's first unreceived message with this tag, and return its array.

    Args:
        transport: between the members.
        shape, dtype: shape and dtype of the array that was sent.
        source: position of the sender in the group.
        tag: the tag that the sender gave.

    Raises:
        GroupError: if the source is this member, or is no position in the group.
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
