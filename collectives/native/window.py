"""Memory that the ranks of one machine share.

The first rank of a machine makes a file in memory without a name (memfd_create), and sends its
descriptor to the other ranks over a socket. The system frees the memory with the last process that
has it, however that process ends, so nothing is left behind and nothing is cleaned up. The size of
/dev/shm does not matter. The memory counts in the control group's memory limit of its first user.

The socket has a random name in the network namespace, which the ranks of a machine share. A path
like /proc/PID/fd/N would need a common process namespace, and the right to inspect another process.
Any process of the namespace may connect to the socket, so each side asks the system for the user of
the other side.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import socket
import struct
from typing import NamedTuple

from collectives.errors import NativeError
from collectives.group import Group
from collectives.limits import usable_memory_bytes

__all__ = [
    "BYPASS_BELOW",
    "CHUNK_BYTES",
    "SharedMemory",
    "chunk_bytes",
    "shared_memory",
]

CHUNK_BYTES = 1 << 17
"""Bytes of a chunk.

Readers should find a chunk in a cache, which asks for small chunks. A rank may be some chunks ahead
of other ranks, so large chunks mean less waiting. Waiting costs more inside a step than in a
collective alone, because there the ranks share their cores with computation."""
BYPASS_BELOW = 6e9
"""Bytes a second: slower writes into memory that another core has read bypass the caches.

Two cores without a common cache write that slowly. Measured: 1.8e9 to 3.5e9 without a common cache,
7e9 and more with one."""

_LEAST_SHARE_BYTES = 64  # of a chunk for each rank; a cache line
_MOST = 8  # the reserved memory is at most the eighth part of the limit
_SECONDS = 60.0


class SharedMemory(NamedTuple):
    """The memory that the ranks of a machine have mapped.

    Attributes:
        memory: the mapped memory, at first all zeros; None if a member could not map it.
        problem: the reason why there is no memory, the same on all members.
        file: descriptor of the memory; -1 if there is no memory.
    """

    memory: mmap.mmap | None
    problem: str
    file: int


def chunk_bytes(ranks: int) -> int:
    """Return the bytes of a chunk in a window of so many ranks, which each get a part of it."""
    least = ranks * _LEAST_SHARE_BYTES
    return max(CHUNK_BYTES, 1 << (least - 1).bit_length())


def shared_memory(group: Group, size_bytes: int, reserved_bytes: int) -> SharedMemory:
    """Map the same memory on all members of the group that are on one machine.

    All members of the group call.

    Args:
        group: ranks on one machine or on several machines.
        size_bytes: size of the memory; the first rank of the machine decides.
        reserved_bytes: the first bytes, whose pages are reserved.
    """
    is_first, file, name, problem = group.local_rank() == 0, -1, "", ""
    with contextlib.ExitStack() as stack:
        try:
            if is_first:
                file = _created(size_bytes, reserved_bytes)
                listening = stack.enter_context(_listening(group.local_size()))
                name = listening.getsockname()[1:].decode()
        except (OSError, NativeError) as error:
            problem = str(error)
        firsts = zip(group.hosts, group.allgather_object([is_first, name, problem]), strict=True)
        name, problem = next(own for host, (first, *own) in firsts if first and host == group.host)
        try:
            if not problem and not is_first:
                connection = stack.enter_context(_connected(name))
        except (OSError, NativeError) as error:
            problem = str(error)
        problem = _first_problem(group, problem)  # afterwards, all connections wait for `listening`
        memory = None
        try:
            if not problem:
                if is_first:
                    _hand_out(listening, file)
                else:
                    file = _received(connection)
                memory = mmap.mmap(file, 0)
        except (OSError, NativeError) as error:
            problem = str(error)
        problem = _first_problem(group, problem)
    if problem and file >= 0:
        os.close(file)
    return SharedMemory(None, problem, -1) if problem else SharedMemory(memory, "", file)


def _first_problem(group: Group, problem: str) -> str:
    """Return the first problem of any member."""
    return next((text for text in group.allgather_object(problem) if text), "")


def _created(size_bytes: int, reserved_bytes: int) -> int:
    """Return the descriptor of a new file in memory, which no process can shrink."""
    if not hasattr(os, "memfd_create"):
        raise NativeError("no memfd_create, which is Linux's.")
    limit = usable_memory_bytes()
    if reserved_bytes > limit // _MOST:
        raise NativeError(
            f"a memory limit of {limit:,} bytes, of which the ranks of this machine would share "
            f"{reserved_bytes:,}, more than the eighth part.\nRaise the limit of the container, or "
            "start fewer ranks on the machine."
        )
    file = os.memfd_create("collectives", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, size_bytes)
        os.posix_fallocate(file, 0, reserved_bytes)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError:
        os.close(file)
        raise
    return file


def _listening(ranks: int) -> socket.socket:
    """Return a socket of a random name, in whose queue the other ranks' connections wait."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listening.bind(f"\0collectives-{secrets.token_hex(16)}")
        listening.listen(ranks)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _connected(name: str) -> socket.socket:
    """Return a connection with the socket of that name."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(_SECONDS)
        connection.connect(f"\0{name}")
        if not _is_own(connection):
            raise NativeError("shared memory that a process of another user offers.")
    except (OSError, NativeError):
        connection.close()
        raise
    return connection


def _is_own(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to the user of this process."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return bool(struct.unpack("3i", credentials)[1] == os.geteuid())


def _hand_out(listening: socket.socket, file: int) -> None:
    """Send a descriptor over all connections that wait, except to other users."""
    while True:
        try:
            connection, _ = listening.accept()
        except BlockingIOError:
            return
        with connection:
            if _is_own(connection):
                socket.send_fds(connection, [b"f"], [file])


def _received(connection: socket.socket) -> int:
    """Return the descriptor that the process at the other end sends."""
    _, files, _, _ = socket.recv_fds(connection, 1, 1)
    if not files:
        raise NativeError("no shared memory from the first rank of the machine.")
    os.set_inheritable(files[0], False)
    return files[0]
