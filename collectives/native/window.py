"""Memory that the ranks of one machine share: a file in /dev/shm that has no name for long.

A file, and not a window of MPI's: its size can be chosen by what is free, its pages are reserved
before anybody writes (a page that cannot be had would be a signal that ends the process), and it
needs no MPI.
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
"""What a chunk may have, the best first: what a rank writes is read from a cache, and a rank may be
some chunks ahead of another, since each wait for it costs more in a step, whose ranks share their
cores with what computes, than in a collective by itself."""
BYPASS_BELOW = 6e9
"""Where a core writes fewer bytes a second into what another has read, both share no cache, and it
writes them past the caches. Seen: 1.8e9 to 3.5e9 where they share none, else 7e9 and more."""

_FOLDER = Path("/dev/shm")
_PREFIX = "collectives-"
_PAGE = 4096
_SHARE = 0.25
"""Of what is free there; MPI and TensorFlow's data pipelines use it, too."""


class SharedMemory(NamedTuple):
    """What a machine's ranks have mapped.

    Attributes:
        memory: all zeros at first; None if a member could not map it.
        part_bytes: of a chunk, or of a room.
        problem: why there is none, the first member's reason on every member.
        file: descriptor; -1 where there is none.
    """

    memory: mmap.mmap | None
    part_bytes: int
    problem: str
    file: int


def shared_memory(group: Group, window_bytes: Callable[[int, int], int]) -> SharedMemory:
    """Map the same memory on all members of the group that are on one machine.

    Every member of the group calls. The file is unlinked before this returns.

    Args:
        group: ranks on one machine or on several.
        window_bytes: the size for a number of ranks and a size of chunks.
    """
    return _shared(group, lambda: _created(group.local_size(), window_bytes))


def shared_rooms(group: Group, start: int) -> SharedMemory:
    """The same, with a room for each rank that has no pages until somebody reserves them.

    Args:
        group: ranks on one machine or on several; every member calls.
        start: bytes before the first room, which are reserved.
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
    first = next((each for each in problems if each), "")
    if first and file >= 0:
        os.close(file)
    return SharedMemory(*((None, chunk, first, -1) if first else (memory, chunk, "", file)))


def _created(ranks: int, window_bytes: Callable[[int, int], int]) -> tuple[str, int, int]:
    """A new file with the largest chunks that there is room for, their size, and the descriptor
    that locks it."""
    if not _FOLDER.is_dir():
        raise NativeError(f"no {_FOLDER}, which is Linux's shared memory.")
    _remove_abandoned()
    free = shutil.disk_usage(_FOLDER).free
    room = int(free * _SHARE)
    chunk = next((each for each in CHUNK_BYTES if window_bytes(ranks, each) <= room), 0)
    if not chunk:
        raise NativeError(
            f"{free:,} bytes free in {_FOLDER}, where {ranks} ranks need "
            f"{int(window_bytes(ranks, CHUNK_BYTES[-1]) / _SHARE):,}.\nGive it more: "
            "docker run --shm-size=1g, say."
        )
    size = window_bytes(ranks, chunk)
    return _file(size, size, chunk)


def _created_rooms(ranks: int, start: int) -> tuple[str, int, int]:
    """The same, of rooms."""
    if not _FOLDER.is_dir():
        raise NativeError(f"no {_FOLDER}, which is Linux's shared memory.")
    _remove_abandoned()
    room = int(shutil.disk_usage(_FOLDER).free * _SHARE) // ranks // _PAGE * _PAGE
    return _file(start, start + ranks * room, room)


def _file(reserved: int, size: int, part_bytes: int) -> tuple[str, int, int]:
    """A new file with pages for its first bytes: its path, ``part_bytes``, and its descriptor."""
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
    """Remove the files of processes that ended before they took the name off: nobody locks them."""
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), open(path, "rb") as file:  # another user's, or gone
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
