"""Ranks that live in one process, without MPI; a job of one process is the only one of them."""

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
"""Fills what members receive from what they send, both by position in the group."""

_REDUCE: dict[str, np.ufunc] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}


class InProcessTransport:
    """One of several ranks of a process.

    The ranks take turns, so none can wait for another: a collective moves its data when the last
    member starts it. Every rank starts a collective before one of them calls `wait`.

    Args:
        ranks: of the group.
        rank: position of this member in it.
        started: per group what its members have started; shared by all ranks of the process.
        messages: by group, sender, receiver and tag those that are not received; likewise.
        hosts: machine of each rank, where they are to look as if they were on several.
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
        """The members of a new group of so many ranks, in order."""
        first = cls(tuple(range(count)), hosts=hosts)
        shared = first._started, first._messages, first.hosts
        return [cls(first.ranks, rank, *shared) for rank in first.ranks]

    def subgroup(self, ranks: tuple[int, ...]) -> InProcessTransport:
        """This rank as a member of a group of some of the ranks."""
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
                "the ranks of one process all start a collective before one waits for it. Got "
                f"rank {self.ranks[self.rank]} of the group {self.ranks} waiting for "
                f"{len(self.ranks) - len(started)} others."
            )

    def allreduce(self, send: Array, receive: Array, reducer: str) -> None:
        """See `Transport.allreduce`; in the group's order."""

        def deliver(sent: list[Array], received: list[Array]) -> None:
            total = _reduced(sent, reducer)
            for each in received:
                each[...] = total

        self._start(send, receive, deliver)

    def reduce_scatter(self, send: Array, receive: Array, reducer: str) -> None:
        """See `Transport.reduce_scatter`; in the group's order."""

        def deliver(sent: list[Array], received: list[Array]) -> None:
            blocks = _reduced(sent, reducer).reshape(len(received), -1)
            for each, block in zip(received, blocks, strict=True):
                each[...] = block

        self._start(send, receive, deliver)

    def allgather(self, send: Bytes, receive: Bytes) -> None:
        """See `Transport.allgather`."""

        def deliver(sent: list[Array], received: list[Array]) -> None:
            for each in received:
                np.concatenate(sent, out=each)

        self._start(send, receive, deliver)

    def alltoall(self, send: Bytes, receive: Bytes) -> None:
        """See `Transport.alltoall`."""
        sizes = [send.size // len(self.ranks)] * len(self.ranks)
        self.exchange(send, sizes, receive, sizes)

    def exchange(
        self, send: Bytes, send_sizes: list[int], receive: Bytes, receive_sizes: list[int]
    ) -> None:
        """See `Transport.exchange`."""
        blocks = np.split(send, np.cumsum(send_sizes)[:-1])
        places = np.split(receive, np.cumsum(receive_sizes)[:-1])

        def deliver(sent: list[list[Array]], received: list[list[Array]]) -> None:
            for member, own in enumerate(received):
                for place, from_member in zip(own, sent, strict=True):
                    place[...] = from_member[member]

        self._start(blocks, places, deliver)

    def broadcast(self, buffer: Bytes, root: int) -> None:
        """See `Transport.broadcast`."""

        def deliver(sent: list[Array], received: list[Array]) -> None:
            for each in received:
                each[...] = sent[root]

        self._start(buffer, buffer, deliver)

    def check_messages(self) -> None:
        """Nothing: a message is there once it is sent."""

    def send(self, buffer: Bytes, target: int, tag: int) -> None:
        """See `Transport.send`."""
        self._messages.setdefault((self.ranks, self.rank, target, tag), []).append(buffer)

    def receive(self, buffer: Bytes, source: int, tag: int) -> None:
        """See `Transport.receive`.

        Raises:
            TransportError: if it has not been sent.
        """
        waiting = self._messages.get((self.ranks, source, self.rank, tag))
        if not waiting:
            raise TransportError(
                "a rank of one process receives what another has sent before. Got rank "
                f"{self.ranks[self.rank]} waiting for rank {self.ranks[source]}."
            )
        buffer[...] = waiting.pop(0)

    def barrier(self) -> None:
        """Nothing: the ranks take turns."""

    def abort(self, code: int) -> NoReturn:
        """Ends this process at once, from whichever thread, as MPI's abort does."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def _start(self, send: Any, receive: Any, deliver: Deliver) -> None:
        """Note what this member sends and receives; the last member delivers for all."""
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
    with np.errstate(all="ignore"):  # as silent as MPI
        for other in sent[1:]:
            _REDUCE[reducer](total, other, out=total)
    return total
