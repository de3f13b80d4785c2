"""MPI, through mpi4py: the only module that imports it, and importing it starts MPI."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from collectives.buffers import Array, Bytes
from collectives.errors import TransportError
from collectives.transport.launch import (
    Launch,
    available_cores,
    mpi_settings,
    shared_memory_bytes,
)

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["MpiTransport", "connect"]

# MPI promises tags up to here; a library may offer more.
_TAGS = 1 << 15


class MpiTransport:
    """The members of one MPI communicator.

    Args:
        communicator: what carries the bytes; nobody else may use it.
        ranks: world rank of every process in it, in its order.
        hosts: machine of every process in it, in its order.
    """

    def __init__(
        self, communicator: MPI.Intracomm, ranks: tuple[int, ...], hosts: tuple[str, ...]
    ) -> None:
        from mpi4py import MPI

        self.ranks = ranks
        self.hosts = hosts
        self.rank: int = communicator.Get_rank()
        self.library = " ".join(MPI.Get_library_version().splitlines()[0].split())
        self._communicator = communicator
        self._subgroups: dict[tuple[int, ...], MpiTransport] = {ranks: self}
        self._operations = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN, "prod": MPI.PROD}

    def subgroup(self, ranks: tuple[int, ...]) -> MpiTransport:
        """The communicator of some members, made once; only they call, in the same order."""
        if ranks not in self._subgroups:
            positions = [self.ranks.index(rank) for rank in ranks]
            members = self._communicator.Get_group().Incl(positions)
            # Groups that share members and are made at once are told apart by their tags.
            tag = zlib.crc32(repr(ranks).encode()) % _TAGS
            communicator = self._communicator.Create_group(members, tag)
            members.Free()
            hosts = tuple(self.hosts[position] for position in positions)
            self._subgroups[ranks] = MpiTransport(communicator, ranks, hosts)
        return self._subgroups[ranks]

    def allreduce(self, send: Array, receive: Array, reducer: str) -> None:
        """MPI_Allreduce."""
        self._communicator.Allreduce(send, receive, self._operations[reducer])

    def reduce_scatter(self, send: Array, receive: Array, reducer: str) -> None:
        """MPI_Reduce_scatter_block."""
        self._communicator.Reduce_scatter_block(send, receive, self._operations[reducer])

    def allgather(self, send: Bytes, receive: Bytes) -> None:
        """MPI_Allgather."""
        self._communicator.Allgather(send, receive)

    def alltoall(self, send: Bytes, receive: Bytes) -> None:
        """MPI_Alltoall."""
        self._communicator.Alltoall(send, receive)

    def exchange(
        self, send: Bytes, send_sizes: list[int], receive: Bytes, receive_sizes: list[int]
    ) -> None:
        """MPI_Alltoallv, which sends nothing where a block is empty."""
        self._communicator.Alltoallv((send, send_sizes), (receive, receive_sizes))

    def broadcast(self, buffer: Bytes, root: int) -> None:
        """MPI_Bcast."""
        self._communicator.Bcast(buffer, root)

    def wait(self) -> None:
        """Nothing: MPI's blocking collectives are done when they return."""

    def barrier(self) -> None:
        """MPI_Barrier."""
        self._communicator.Barrier()

    def abort(self, code: int) -> NoReturn:
        """MPI_Abort of the world: a member that waits for this process would wait for ever."""
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(code)
        raise SystemExit(code)


def connect(launch: Launch) -> MpiTransport:
    """The transport of all processes of the job; starts MPI. Every process of the job calls.

    Raises:
        TransportError: if mpi4py or its MPI is missing, if it is not the MPI of the launcher, or
            if its thread level is too low for TensorFlow's threads.
    """
    settings = mpi_settings(launch, available_cores(), shared_memory_bytes())
    for variable, value in settings.items():
        os.environ.setdefault(variable, value)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise TransportError(
            f"a process started by {launch.launcher} needs mpi4py and an MPI library. Got "
            f"{error!r}: install them, or set COLLECTIVES_TRANSPORT=single."
        ) from error
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    _check_threads(MPI.Query_thread())
    _check_size(launch, MPI.COMM_WORLD.Get_size())
    communicator = MPI.COMM_WORLD.Dup()
    ranks = tuple(range(communicator.Get_size()))
    return MpiTransport(communicator, ranks, _hosts(communicator))


def _hosts(communicator: MPI.Intracomm) -> tuple[str, ...]:
    from mpi4py import MPI

    name_type = np.dtype((np.bytes_, MPI.MAX_PROCESSOR_NAME))
    own = np.array([MPI.Get_processor_name().encode()], name_type)
    every = np.empty(communicator.Get_size(), name_type)
    communicator.Allgather(own.view(np.uint8), every.view(np.uint8))
    return tuple(name.decode() for name in every.tolist())


def _check_threads(level: int) -> None:
    from mpi4py import MPI

    if level < MPI.THREAD_SERIALIZED:
        names = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled"}
        raise TransportError(
            "TensorFlow runs collectives in threads of its own, so MPI's thread level is at least "
            f"serialized. Got {names.get(level, level)}: import collectives before what starts "
            "MPI, leave mpi4py.rc.thread_level as it is, or use an MPI built with threads."
        )


def _check_size(launch: Launch, size: int) -> None:
    if launch.processes is not None and launch.processes != size:
        from mpi4py import MPI

        library = MPI.Get_library_version().strip().splitlines()[0]
        raise TransportError(
            f"the MPI that mpi4py uses is the launcher's. Got {launch.processes} processes from "
            f"{launch.launcher} but {size} in {library}: start them with that library's mpirun."
        )
