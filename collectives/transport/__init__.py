"""The interface of a transport, which carries the bytes of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Protocol

from collectives.buffers import Array, Bytes

__all__ = ["Transport"]


class Transport(Protocol):
    """Carries contiguous buffers between the members of one group.

    Buffers are one-dimensional. Except for `send` and `receive`, all members make the same calls in
    the same order with buffers of the same sizes. A call starts a collective, whose result is
    complete after the next `wait`. Block i of a buffer belongs to position i of the group.

    A transport does not convert, check or lay out elements; `collectives.operations` does.
    """

    @property
    def ranks(self) -> tuple[int, ...]:
        """World ranks of the members, in the group's order."""

    @property
    def rank(self) -> int:
        """Position of this member in ``ranks``."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Name of the machine of each member, in the group's order."""

    @property
    def library(self) -> str:
        """Name and version of the MPI library; empty for a job of one process."""

    def subgroup(self, ranks: tuple[int, ...]) -> Transport:
        """The transport of some members including this one; only these members call."""

    def allreduce(self, send: Array, receive: Array, reducer: str) -> None:
        """Set ``receive`` to the reduction of all members' ``send``."""

    def reduce_scatter(self, send: Array, receive: Array, reducer: str) -> None:
        """Set ``receive`` to this member's block of the reduction of all ``send``."""

    def allgather(self, send: Bytes, receive: Bytes) -> None:
        """Set ``receive`` to the ``send`` of all members, one after another."""

    def gather_short_by(self, gather: Callable[[Bytes, Bytes], bool]) -> None:
        """Let `allgather` try a faster function first, which returns False for longer messages. All
        members call."""

    def alltoall(self, send: Bytes, receive: Bytes) -> None:
        """Set block i of ``receive`` to this member's block of the ``send`` of member i."""

    def exchange(
        self, send: Bytes, send_sizes: list[int], receive: Bytes, receive_sizes: list[int]
    ) -> None:
        """Set block i of ``receive`` to this member's block of the ``send`` of member i.

        ``send_sizes`` and ``receive_sizes`` are in bytes, one per member; most are 0.
        """

    def broadcast(self, buffer: Bytes, root: int) -> None:
        """Set ``buffer`` to the buffer of the member at position ``root``."""

    def check_messages(self) -> None:
        """Check that messages can travel while a member waits; called before the first `send`.

        Raises:
            TransportError: if they cannot.
        """

    def send(self, buffer: Bytes, target: int, tag: int) -> None:
        """Send to the member at position ``target``. The call returns at once, and the caller does
        not change the buffer afterwards."""

    def receive(self, buffer: Bytes, source: int, tag: int) -> None:
        """Wait for the next message with this tag from the member at position ``source``, and write
        it to ``buffer``."""

    def wait(self) -> None:
        """Wait until the collective that this member started last is done."""

    def barrier(self) -> None:
        """Wait until every member has called."""

    def abort(self, code: int) -> NoReturn:
        """End all processes of the job, also those outside the group."""
