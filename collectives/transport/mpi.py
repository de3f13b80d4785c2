"""The transport over MPI. Only this module imports mpi4py; `connect` starts MPI."""

from __future__ import annotations

import ctypes
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from collectives.buffers import Array, Bytes
from collectives.errors import TransportError
from collectives.transport.end_launcher import end_later
from collectives.transport.launch import (
    Launch,
    available_cores,
    check_library,
    check_size,
    distinct_names,
    library_settings,
    machine_identity,
    mpi_settings,
    reads_memory,
    shared_memory_bytes,
)
from collectives.transport.outbox import Outbox
from collectives.watchdog import about, terminate, watchdog

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["HOST_VARIABLE", "MpiTransport", "connect"]

HOST_VARIABLE = "COLLECTIVES_HOST"
"""Environment variable with the name of a rank's machine; it replaces the name that MPI reports.

Ranks in two containers of one machine need different names, because they share no memory."""

_LEAST_TAG_LIMIT = 32767  # every MPI library has tags up to this number
_SEGMENTS = "/dev/shm/mpich_shm_"

_outbox = Outbox()


class MpiTransport:
    """The members of one MPI communicator.

    Args:
        communicator: carries the bytes; only this object uses it.
        ranks: world rank of each process of the communicator, in its order.
        hosts: name of the machine of each process, in the same order.
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
        largest = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
        self._largest_tag = largest if isinstance(largest, int) else _LEAST_TAG_LIMIT
        self._subgroups: dict[tuple[int, ...], MpiTransport] = {ranks: self}
        self._gather_short: Callable[[Bytes, Bytes], bool] = lambda *_: False
        self._operations = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN, "prod": MPI.PROD}

    def subgroup(self, ranks: tuple[int, ...]) -> MpiTransport:
        """See `Transport.subgroup`; a communicator is made once."""
        if ranks not in self._subgroups:
            positions = [self.ranks.index(rank) for rank in ranks]
            members = self._communicator.Get_group().Incl(positions)
            # The tag distinguishes groups that share members and are made at the same time.
            tag = zlib.crc32(repr(ranks).encode()) % (self._largest_tag + 1)
            with watchdog().waiting("a new group", ranks):
                communicator = self._communicator.Create_group(members, tag)
            members.Free()
            hosts = tuple(self.hosts[position] for position in positions)
            self._subgroups[ranks] = MpiTransport(communicator, ranks, hosts)
        return self._subgroups[ranks]

    def allreduce(self, send: Array, receive: Array, reducer: str) -> None:
        """MPI_Allreduce."""
        with self._waiting("allreduce"):
            self._communicator.Allreduce(send, receive, self._operations[reducer])

    def reduce_scatter(self, send: Array, receive: Array, reducer: str) -> None:
        """MPI_Reduce_scatter_block."""
        with self._waiting("reduce_scatter"):
            self._communicator.Reduce_scatter_block(send, receive, self._operations[reducer])

    def allgather(self, send: Bytes, receive: Bytes) -> None:
        """MPI_Allgather, unless `gather_short_by` has given a function that takes the messages."""
        with self._waiting("allgather"):
            if not self._gather_short(send, receive):
                self._communicator.Allgather(send, receive)

    def gather_short_by(self, gather: Callable[[Bytes, Bytes], bool]) -> None:
        """See `Transport.gather_short_by`."""
        self._gather_short = gather

    def alltoall(self, send: Bytes, receive: Bytes) -> None:
        """MPI_Alltoall."""
        with self._waiting("alltoall"):
            self._communicator.Alltoall(send, receive)

    def exchange(
        self, send: Bytes, send_sizes: list[int], receive: Bytes, receive_sizes: list[int]
    ) -> None:
        """MPI_Alltoallv, which sends nothing for an empty block."""
        with self._waiting("exchange"):
            self._communicator.Alltoallv((send, send_sizes), (receive, receive_sizes))

    def broadcast(self, buffer: Bytes, root: int) -> None:
        """MPI_Bcast."""
        with self._waiting("broadcast"):
            self._communicator.Bcast(buffer, root)

    def check_messages(self) -> None:
        """See `Transport.check_messages`: MPI has to take calls of several threads at once."""
        from mpi4py import MPI

        if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
            raise TransportError(
                "messages travel while a rank waits, so MPI's thread level is multiple. Got "
                "a lower one: leave mpi4py.rc.thread_level as it is, or use an MPI with threads."
            )

    def send(self, buffer: Bytes, target: int, tag: int) -> None:
        """MPI_Isend, which `Outbox` continues."""
        _outbox.add(self._communicator.Isend(buffer, target, self._checked(tag)), buffer)

    def receive(self, buffer: Bytes, source: int, tag: int) -> None:
        """MPI_Recv."""
        sender = self.ranks[source]
        with watchdog().waiting("receive", (sender, self.ranks[self.rank]), sender):
            self._communicator.Recv(buffer, source, self._checked(tag))

    def _checked(self, tag: int) -> int:
        if not 0 <= tag <= self._largest_tag:
            raise TransportError(
                f"tags of messages through MPI are from 0 to {self._largest_tag}. Got {tag}: send "
                "fewer messages between two ranks in a step, by fewer microbatches."
            )
        return tag

    def wait(self) -> None:
        """Do nothing: MPI's blocking collectives are done when they return."""

    def barrier(self) -> None:
        """MPI_Barrier."""
        with self._waiting("barrier"):
            self._communicator.Barrier()

    def _waiting(self, kind: str) -> AbstractContextManager[None]:
        return watchdog().waiting(kind, self.ranks)

    def abort(self, code: int) -> NoReturn:
        """MPI_Abort of the world, because a member that waits for this process would hang."""
        from mpi4py import MPI

        _abort(MPI.COMM_WORLD, code)
        raise SystemExit(code)


class MpiPeers:
    """See `collectives.watchdog.Peers`; for MPI with the thread level multiple.

    Args:
        communicator: has all processes; only this object uses it.
    """

    def __init__(self, communicator: MPI.Intracomm) -> None:
        self._communicator = communicator
        self._sent: list[tuple[MPI.Request, bytes]] = []
        self.rank: int = communicator.Get_rank()

    def send(self, rank: int, message: bytes) -> None:
        """MPI_Isend."""
        self._sent = [sent for sent in self._sent if not sent[0].Test()]
        self._sent.append((self._communicator.Isend(message, rank), message))

    def received(self) -> Iterator[tuple[int, bytes]]:
        """MPI_Iprobe, and MPI_Recv of the messages that have arrived."""
        from mpi4py import MPI

        status = MPI.Status()
        while self._communicator.Iprobe(status=status):
            message = bytearray(status.Get_count())
            self._communicator.Recv(message, status.Get_source())
            yield status.Get_source(), bytes(message)

    def abort(self) -> None:
        """MPI_Abort."""
        _abort(self._communicator, 1)


def _abort(communicator: MPI.Intracomm, code: int) -> None:
    """MPI_Abort without MPI's own messages, because the caller has written the reason."""
    try:
        end_later()  # the launcher may wait for a machine that is out of reach
    finally:
        sys.stderr.flush()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)
        communicator.Abort(code)


def connect(launch: Launch) -> MpiTransport:
    """Start MPI and return the transport of all processes of the job, each of which calls.

    Raises:
        TransportError: if mpi4py or its MPI is missing, if mpi4py uses another MPI than the
            launcher, or if MPI's thread level is too low for TensorFlow's threads.
    """
    _set_defaults(mpi_settings(launch, available_cores(), shared_memory_bytes(), reads_memory()))
    dog = watchdog()
    dog.end_alone_by(_end_in_start)
    with about("the start of MPI"), dog.waiting("", ()):
        MPI = _started(launch)
        _check_threads(MPI.Query_thread())
        check_size(launch, MPI.COMM_WORLD.Get_size(), MPI.Get_library_version())
        communicator = MPI.COMM_WORLD.Dup()
        ranks = tuple(range(communicator.Get_size()))
        hosts = _hosts(communicator)
        _unlink_segments()
        if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            dog.connect(MpiPeers(MPI.COMM_WORLD.Dup()), hosts)
    return MpiTransport(communicator, ranks, hosts)


def _set_defaults(settings: dict[str, str]) -> None:
    for variable, value in settings.items():
        os.environ.setdefault(variable, value)


def _started(launch: Launch) -> ModuleType:
    """Call MPI_Init_thread and return ``mpi4py.MPI``.

    mpi4py's own initialization would hold Python's lock, so other threads would stand still while
    MPI waits for other processes.

    Raises:
        TransportError: if mpi4py or MPI is missing, or is another MPI than the launcher.
    """
    try:
        import mpi4py

        settings = mpi4py.rc.initialize, mpi4py.rc.finalize
        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI

        mpi4py.rc.initialize, mpi4py.rc.finalize = settings
    except (ImportError, RuntimeError) as error:
        raise TransportError(
            f"a process started by {launch.launcher} needs mpi4py and an MPI library. Got "
            f"{error!r}: install them, or set COLLECTIVES_TRANSPORT=single."
        ) from error
    if not MPI.Is_initialized():
        library = MPI.Get_library_version()
        check_library(launch, library)
        _set_defaults(library_settings(launch, library))
        wanted = getattr(MPI, f"THREAD_{mpi4py.rc.thread_level.upper()}")
        given = ctypes.c_int()
        failed = ctypes.CDLL(MPI.__file__).MPI_Init_thread(None, None, wanted, ctypes.byref(given))
        if failed:
            raise TransportError(
                f"MPI starts on all processes of a job. Got error {failed} of MPI_Init_thread: "
                "check that mpirun and mpi4py belong to one MPI."
            )
        for communicator in (MPI.COMM_WORLD, MPI.COMM_SELF):
            communicator.Set_errhandler(MPI.ERRORS_RETURN)
    return MPI


def _unlink_segments() -> None:
    """Unlink the files of MPICH's shared memory, which all ranks have mapped by now.

    The system then frees the memory with the last process, also when that is killed. MPICH unlinks
    the files only when it ends normally, so a killed job left some megabytes behind.
    """
    maps = Path("/proc/self/maps")
    lines = maps.read_text("utf-8").splitlines() if maps.exists() else []
    for path in {line.split(maxsplit=5)[-1] for line in lines}:
        if path.startswith(_SEGMENTS):
            Path(path).unlink(missing_ok=True)


def _end_in_start() -> None:
    """End the job from a process in which MPI is still starting."""
    _unlink_segments()
    try:
        end_later()
    finally:
        terminate()


def _hosts(communicator: MPI.Intracomm) -> tuple[str, ...]:
    """The name of the machine of each process."""
    from mpi4py import MPI

    given = os.environ.get(HOST_VARIABLE)
    name, identity = given or MPI.Get_processor_name(), "" if given else machine_identity()
    text_type = np.dtype((np.bytes_, MPI.MAX_PROCESSOR_NAME))
    machine = np.array([name.encode(), identity.encode()], text_type)
    machines = np.empty((communicator.Get_size(), 2), text_type)
    communicator.Allgather(machine.view(np.uint8), machines.view(np.uint8))
    return distinct_names([(name.decode(), identity.decode()) for name, identity in machines])


def _check_threads(level: int) -> None:
    from mpi4py import MPI

    if level < MPI.THREAD_SERIALIZED:
        names = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled"}
        raise TransportError(
            "TensorFlow runs collectives in its own threads, so MPI's thread level is at least "
            f"serialized. Got {names.get(level, level)}: import collectives before the module that "
            "starts MPI, leave mpi4py.rc.thread_level as it is, or use an MPI built with threads."
        )
