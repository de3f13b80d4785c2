"""The memory that the ranks of one machine share: a file in /dev/shm that has no name for long.

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

from collectives.errors import NativeError
from collectives.group import Group

__all__ = ["CHUNK_BYTES", "shared_memory"]

CHUNK_BYTES = (1 << 17, 1 << 16, 1 << 15, 1 << 14, 1 << 13)
"""What a chunk may have, the best first: what a rank writes is read from a cache, and a rank may be
some chunks ahead of another, since each wait for it costs more in a step, whose ranks share their
cores with what computes, than in a collective by itself."""

_FOLDER = Path("/dev/shm")
_PREFIX = "collectives-"
_SHARE = 0.25
"""Of what is free there; MPI and TensorFlow's data pipelines use it, too."""


def shared_memory(
    group: Group, window_bytes: Callable[[int, int], int]
) -> tuple[mmap.mmap | None, int, str]:
    """Map the same memory on all members of the group that are on one machine.

    Every member of the group calls. The file is unlinked before this returns.

    Args:
        group: ranks on one machine or on several.
        window_bytes: the size for a number of ranks and a size of chunks.

    Returns:
        The memory, all zeros, and the size of a chunk. If a member could not map it: None, and on
        every member the reason of the first.
    """
    path, chunk, problem, lock = "", 0, "", -1
    if group.local_rank() == 0:
        try:
            path, chunk, lock = _created(group.local_size(), window_bytes)
        except (OSError, NativeError) as error:
            problem = str(error)
    offers = group.allgather_object([group.local_rank(), path, chunk, problem])
    _, path, chunk, problem = next(
        offer
        for offer, host in zip(offers, group.hosts, strict=True)
        if offer[0] == 0 and host == group.host
    )
    memory = None
    if not problem:
        try:
            with open(path, "r+b") as file:
                memory = mmap.mmap(file.fileno(), 0)
        except OSError as error:
            problem = str(error)
    problems = group.allgather_object(problem)
    if lock >= 0:
        Path(path).unlink(missing_ok=True)
        os.close(lock)
    first = next((each for each in problems if each), "")
    return (None if first else memory), chunk, first


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
    path = _FOLDER / f"{_PREFIX}{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.posix_fallocate(descriptor, 0, window_bytes(ranks, chunk))
    except OSError:
        os.unlink(path)
        os.close(descriptor)
        raise
    return str(path), chunk, descriptor


def _remove_abandoned() -> None:
    """Remove the files of processes that ended before they took the name off: nobody locks them."""
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), open(path, "rb") as file:  # another user's, or gone
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
