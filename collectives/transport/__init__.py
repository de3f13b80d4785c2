"""What a group asks of whatever carries its bytes."""

from __future__ import annotations

from typing import NoReturn, Protocol

from collectives.buffers import Array, Bytes

__all__ = ["Transport"]


class Transport(Protocol):
    """Carries contiguous buffers between the members of one group.

    Buffers are one-dimensional. Every member makes the same calls in the same order with buffers
    of the same sizes, but for `send` and `receive`. A call starts a collective; its result is there
    after the next `wait`.
    Block i of a buffer belongs to position i of the group. Nothing here converts, checks or
    lays out elements: `collectives.operations` has done that.
    """

    @property
    def ranks(self) -> tuple[int, ...]:
        """World ranks of the members, in the group's order."""

    @property
    def rank(self) -> int:
        """Position of this member in ``ranks``."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Name of the machine of every member, in the group's order."""

    @property
    def library(self) -> str:
        """Name and version of what carries the bytes; empty for a process alone."""

    def subgroup(self, ranks: tuple[int, ...]) -> Transport:
        """The transport of some of the members, this one among them; only they call."""

    def allreduce(self, send: Array, receive: Array, reducer: str) -> None:
        """``receive`` becomes the reduction of every member's ``send``."""

    def reduce_scatter(self, send: Array, receive: Array, reducer: str) -> None:
        """``receive`` becomes this member's block of the reduction of every ``send``."""

    def allgather(self, send: Bytes, receive: Bytes) -> None:
        """``receive`` becomes the ``send`` of every member, one after another."""

    def alltoall(self, send: Bytes, receive: Bytes) -> None:
        """Block i of ``receive`` becomes this member's block of the ``send`` of member i."""

    def exchange(
        self, send: Bytes, send_sizes: list[int], receive: Bytes, receive_sizes: list[int]
    ) -> None:
        """Block i of ``receive`` becomes this member's block of the ``send`` of member i.

        Blocks have the sizes given, in bytes, one per member; most are empty.
        """

    def broadcast(self, buffer: Bytes, root: int) -> None:
        """``buffer`` becomes that of the member at position ``root``."""

    def check_messages(self) -> None:
        """Before the first `send`.

        Raises:
            TransportError: if messages cannot go on while members wait for others.
        """

    def send(self, buffer: Bytes, target: int, tag: int) -> None:
        """Send to the member at a position, which alone receives. Returns at once; the buffer
        stays as it is."""

    def receive(self, buffer: Bytes, source: int, tag: int) -> None:
        """``buffer`` becomes what the member at a position has sent with this tag, the first that
        is not received yet. Returns once it is there."""

    def wait(self) -> None:
        """Returns once the collective that this member started last is done."""

    def barrier(self) -> None:
        """Returns once every member has called."""

    def abort(self, code: int) -> NoReturn:
        """Ends every process of the job, members or not."""
