"""A transport for ranks that live in one process, without MPI. A job may have only one rank."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import numpy as np

from collectives.buffers import Array, Bytes
from collectives.errors import TransportError

__all__ = ["InProcessTransport"]

Deliver: TypeAlias = Callable[[list[Any], list[Any]], None]
"""Fills the receive buffers of all members from their send buffers, both in the group's order."""

_REDUCE: dict[str, np.ufunc] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}


class InProcessTransport:
    """One of several ranks of a process.

    The ranks take turns, so a rank cannot wait for another one. A collective moves its data when
    the last member starts it. All ranks start a collective before the first of them calls `wait`.

    Args:
        ranks: the ranks of the group.
        rank: position of this member in the group.
        started: the buffers of members that have started a collective, by group and position;
            shared by all ranks of the process.
        messages: messages that are not received yet, by group, sender, receiver and tag; shared by
            all ranks of the process.
        hosts: name of the machine of each rank, to pretend that they are on several machines.
    """

    library = ""

    def __init__(
        self,
        ranks: tuple[int, ...] = (0,),
        rank: int = 0,
        started: dict[tuple[int, ...], dict[int, tuple[Any, Any]]] | None = None,
        messages: dict[tuple[tuple[int, ...], int, int, int], list[Bytes]] | None = None,
        hosts: tuple[str, ...] | None = None,
    ) -> None:
        self.ranks = ranks
        self.rank = rank
        self.hosts = hosts or (socket.gethostname(),) * len(ranks)
        self._started = {} if started is None else started
        self._messages = {} if messages is None else messages

    @classmethod
    def all_of(cls, count: int, hosts: tuple[str, ...] | None = None) -> list[InProcessTransport]:
        """The members of a new group of ``count`` ranks, in order."""
        first = cls(tuple(range(count)), hosts=hosts)
        shared = first._started, first._messages, first.hosts
        return [cls(first.ranks, rank, *shared) for rank in first.ranks]

    def subgroup(self, ranks: tuple[int, ...]) -> InProcessTransport:
        """See `Transport.subgroup`."""
        rank = ranks.index(self.ranks[self.rank])
        hosts = tuple(self.hosts[self.ranks.index(each)] for each in ranks)
        return InProcessTransport(ranks, rank, self._started, self._messages, hosts)

    def wait(self) -> None:
        """See `Transport.wait`.

        Raises:
            TransportError: if another rank of the group has not started the collective.
        """
        started = self._started.get(self.ranks)
        if started:
            raise TransportError(
                "all ranks of a process start a collective before one waits for it. Got "
                f"rank {self.ranks[self.rank]} of the group {self.ranks} waiting for "
                f"{len(self.ranks) - len(started)} others."
            )

    def allreduce(self, send: Array, receive: Array, reducer: str) -> None:
        """See `Transport.allreduce`; reduces in the group's order."""

        def deliver(sent: list[Array], received: list[Array]) -> None:
            total = _reduced(sent, reducer)
            for target in received:
                target[...] = total

        self._start(send, receive, deliver)

    def reduce_scatter(self, send: Array, receive: Array, reducer: str) -> None:
        """See `Transport.reduce_scatter`; reduces in the group's order."""

        def deliver(sent: list[Array], received: list[Array]) -> None:
            blocks = _reduced(sent, reducer).reshape(len(received), -1)
            for target, block in zip(received, blocks, strict=True):
                target[...] = block

        self._start(send, receive, deliver)

    def allgather(self, send: Bytes, receive: Bytes) -> None:
        """See `Transport.allgather`."""

        def deliver(sent: list[Array], received: list[Array]) -> None:
            for target in received:
                np.concatenate(sent, out=target)

        self._start(send, receive, deliver)

    def gather_short_by(self, gather: Callable[[Bytes, Bytes], bool]) -> None:
        """Do nothing: no rank waits."""

    def alltoall(self, send: Bytes, receive: Bytes) -> None:
        """See `Transport.alltoall`."""
        sizes = [send.size // len(self.ranks)] * len(self.ranks)
        self.exchange(send, sizes, receive, sizes)

    def exchange(
        self, send: Bytes, send_sizes: list[int], receive: Bytes, receive_sizes: list[int]
    ) -> None:
        """See `Transport.exchange`."""
        blocks = np.split(send, np.cumsum(send_sizes)[:-1])
        targets = np.split(receive, np.cumsum(receive_sizes)[:-1])

        def deliver(sent: list[list[Array]], received: list[list[Array]]) -> None:
            for member, targets in enumerate(received):
                for target, from_member in zip(targets, sent, strict=True):
                    target[...] = from_member[member]

        self._start(blocks, targets, deliver)

    def broadcast(self, buffer: Bytes, root: int) -> None:
        """See `Transport.broadcast`."""

        def deliver(sent: list[Array], received: list[Array]) -> None:
            for target in received:
                target[...] = sent[root]

        self._start(buffer, buffer, deliver)

    def check_messages(self) -> None:
        """Do nothing: a message has arrived once it is sent."""

    def send(self, buffer: Bytes, target: int, tag: int) -> None:
        """See `Transport.send`."""
        self._messages.setdefault((self.ranks, self.rank, target, tag), []).append(buffer)

    def receive(self, buffer: Bytes, source: int, tag: int) -> None:
        """See `Transport.receive`.

        Raises:
            TransportError: if the message has not been sent.
        """
        waiting = self._messages.get((self.ranks, source, self.rank, tag))
        if not waiting:
            raise TransportError(
                "in one process, a rank sends a message before another rank receives it. Got rank "
                f"{self.ranks[self.rank]} waiting for rank {self.ranks[source]}."
            )
        buffer[...] = waiting.pop(0)

    def barrier(self) -> None:
        """Do nothing: the ranks take turns."""

    def abort(self, code: int) -> NoReturn:
        """End this process at once; callable from any thread, like MPI's abort."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def _start(self, send: Any, receive: Any, deliver: Deliver) -> None:
        """Note this member's buffers; the call of the last member delivers the data of all."""
        started = self._started.setdefault(self.ranks, {})
        if self.rank in started:
            started.clear()
            raise TransportError(
                "a rank finishes a collective before it starts the next. Got two of rank "
                f"{self.ranks[self.rank]} in the group {self.ranks}."
            )
        started[self.rank] = send, receive
        if len(started) == len(self.ranks):
            pairs = [started.pop(position) for position in range(len(self.ranks))]
            deliver([sent for sent, _ in pairs], [received for _, received in pairs])


def _reduced(sent: list[Array], reducer: str) -> Array:
    total = sent[0].copy()
    with np.errstate(all="ignore"):  # MPI does not warn either
        for other in sent[1:]:
            _REDUCE[reducer](total, other, out=total)
    return total
