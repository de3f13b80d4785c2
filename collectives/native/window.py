"""Memory that the ranks of one machine share: a file in /dev/shm that is unlinked at once.

A file has three advantages over a window of MPI's. Its size can follow the free space. Its pages
are reserved before a rank writes, while a missing page would be a signal that ends the process. And
it needs no MPI.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from collectives.errors import NativeError
from collectives.group import Group

__all__ = ["BYPASS_BELOW", "CHUNK_BYTES", "SharedMemory", "shared_memory", "shared_rooms"]

CHUNK_BYTES = (1 << 17, 1 << 16, 1 << 15, 1 << 14, 1 << 13)
"""Sizes of a chunk in bytes, the best first.

Readers should find a chunk in a cache, which asks for small chunks. A rank may be some chunks ahead
of other ranks, so large chunks mean less waiting. Waiting costs more inside a step than in a
collective alone, because there the ranks share their cores with computation."""
BYPASS_BELOW = 6e9
"""Bytes a second: slower writes into memory that another core has read bypass the caches.

Two cores without a common cache write that slowly. Measured: 1.8e9 to 3.5e9 without a common cache,
7e9 and more with one."""

_FOLDER = Path("/dev/shm")
_PREFIX = "collectives-"
_PAGE = 4096
_SHARE = 0.25
"""Largest share of the free space; MPI and TensorFlow's data pipelines use /dev/shm, too."""


class SharedMemory(NamedTuple):
    """The memory that the ranks of a machine have mapped.

    Attributes:
        memory: the mapped memory, at first all zeros; None if a member could not map it.
        part_bytes: bytes of a chunk, or of a room.
        problem: the reason why there is no memory, the same on all members.
        file: descriptor of the file; -1 if there is no memory.
    """

    memory: mmap.mmap | None
    part_bytes: int
    problem: str
    file: int


def shared_memory(group: Group, window_bytes: Callable[[int, int], int]) -> SharedMemory:
    """Map the same memory on all members of the group that are on one machine.

    All members of the group call. The file is unlinked before the function returns.

    Args:
        group: ranks on one machine or on several machines.
        window_bytes: returns the bytes of a window for a number of ranks and a size of chunks.
    """
    return _shared(group, lambda: _created(group.local_size(), window_bytes))


def shared_rooms(group: Group, start: int) -> SharedMemory:
    """Like `shared_memory`, with a room for each rank whose pages are not reserved yet.

    Args:
        group: ranks on one machine or on several machines; all members call.
        start: bytes before the first room; their pages are reserved.
    """
    return _shared(group, lambda: _created_rooms(group.local_size(), start))


def _shared(group: Group, created: Callable[[], tuple[str, int, int]]) -> SharedMemory:
    path, chunk, problem, lock = "", 0, "", -1
    if group.local_rank() == 0:
        try:
            path, chunk, lock = created()
        except (OSError, NativeError) as error:
            problem = str(error)
    offers = group.allgather_object([group.local_rank(), path, chunk, problem])
    _, path, chunk, problem = next(
        offer
        for offer, host in zip(offers, group.hosts, strict=True)
        if offer[0] == 0 and host == group.host
    )
    memory, file = None, -1
    if not problem:
        try:
            file = os.open(path, os.O_RDWR)
            memory = mmap.mmap(file, 0)
        except OSError as error:
            problem = str(error)
    problems = group.allgather_object(problem)
    if lock >= 0:
        Path(path).unlink(missing_ok=True)
        os.close(lock)
    first = next((text for text in problems if text), "")
    if first and file >= 0:
        os.close(file)
    return SharedMemory(*((None, chunk, first, -1) if first else (memory, chunk, "", file)))


def _created(ranks: int, window_bytes: Callable[[int, int], int]) -> tuple[str, int, int]:
    """Make a file with the largest chunks that fit; return its path, the size of the chunks and the
    descriptor that locks it."""
    if not _FOLDER.is_dir():
        raise NativeError(f"no {_FOLDER}, which is Linux's shared memory.")
    _remove_abandoned()
    free = shutil.disk_usage(_FOLDER).free
    room = int(free * _SHARE)
    chunk = next((size for size in CHUNK_BYTES if window_bytes(ranks, size) <= room), 0)
    if not chunk:
        raise NativeError(
            f"{free:,} bytes free in {_FOLDER}, where {ranks} ranks need "
            f"{int(window_bytes(ranks, CHUNK_BYTES[-1]) / _SHARE):,}.\nMake it larger, for example "
            "with docker run --shm-size=1g."
        )
    size = window_bytes(ranks, chunk)
    return _file(size, size, chunk)


def _created_rooms(ranks: int, start: int) -> tuple[str, int, int]:
    """Make a file with rooms; return its path, the size of a room and the descriptor."""
    if not _FOLDER.is_dir():
        raise NativeError(f"no {_FOLDER}, which is Linux's shared memory.")
    _remove_abandoned()
    room = int(shutil.disk_usage(_FOLDER).free * _SHARE) // ranks // _PAGE * _PAGE
    return _file(start, start + ranks * room, room)


def _file(reserved: int, size: int, part_bytes: int) -> tuple[str, int, int]:
    """Make a file and reserve the pages of its first bytes; return its path, ``part_bytes`` and its
    descriptor."""
    path = _FOLDER / f"{_PREFIX}{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, size)
        os.posix_fallocate(descriptor, 0, reserved)
    except OSError:
        os.unlink(path)
        os.close(descriptor)
        raise
    return str(path), part_bytes, descriptor


def _remove_abandoned() -> None:
    """Remove files of processes that ended before they unlinked them; no process locks these."""
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), open(path, "rb") as file:  # another user's, or gone
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
