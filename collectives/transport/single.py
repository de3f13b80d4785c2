"""A world of one process, without MPI."""

from __future__ import annotations

import os
import socket
import sys
from typing import NoReturn

from collectives.buffers import Array, Bytes

__all__ = ["SingleTransport"]


class SingleTransport:
    """One process that is a whole job: every collective is a copy."""

    ranks: tuple[int, ...] = (0,)
    rank = 0
    library = ""

    def __init__(self) -> None:
        self.hosts = (socket.gethostname(),)

    def subgroup(self, ranks: tuple[int, ...]) -> SingleTransport:
        """Itself: the group of this one process is all there is."""
        del ranks
        return self

    def allreduce(self, send: Array, receive: Array, reducer: str) -> None:
        """A copy."""
        del reducer
        receive[...] = send

    def reduce_scatter(self, send: Array, receive: Array, reducer: str) -> None:
        """A copy."""
        del reducer
        receive[...] = send

    def allgather(self, send: Bytes, receive: Bytes) -> None:
        """A copy."""
        receive[...] = send

    def alltoall(self, send: Bytes, receive: Bytes) -> None:
        """A copy."""
        receive[...] = send

    def exchange(
        self, send: Bytes, send_sizes: list[int], receive: Bytes, receive_sizes: list[int]
    ) -> None:
        """A copy."""
        del send_sizes, receive_sizes
        receive[...] = send

    def broadcast(self, buffer: Bytes, root: int) -> None:
        """Nothing: the buffer is the root's already."""

    def barrier(self) -> None:
        """Nothing: there is nobody to wait for."""

    def abort(self, code: int) -> NoReturn:
        """Ends this process at once, from whichever thread, as MPI's abort does."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
