"""Files that go to the disk without the operating system's cache.

The cache costs a copy of the bytes and bookkeeping for each page of them; without it the disk reads
the process's memory. That memory is kept for the next file, because the first write to a page that
the process has just got takes several times as long as a write to one that it had.
"""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np

__all__ = ["give_back", "pages_for", "write"]

_PAGE_BYTES = 4096  # The disk reads whole pages of memory and writes whole blocks of this size.
_AT_ONCE_BYTES = 64 << 20  # Linux writes 2 GiB at most

Array = np.ndarray[Any, Any]


_free: list[Array] = []  # pages that no file needs now


def pages_for(size: int) -> Array:
    """Return whole pages of memory for some bytes, of which `write` makes a file."""
    whole = _whole(size)
    fitting = [number for number, pages in enumerate(_free) if len(pages) >= whole]
    if fitting:
        return _free.pop(min(fitting, key=lambda number: len(_free[number])))
    _free.clear()  # They were for smaller files.
    room = np.empty(whole + _PAGE_BYTES, np.uint8)
    start = -room.ctypes.data % _PAGE_BYTES
    return room[start : start + whole]


def give_back(pages: Array) -> None:
    """Keep pages for the next file."""
    _free.append(pages)


def write(path: str, pages: Array, size: int) -> None:
    """Write a file of the first bytes of some memory.

    A file system without such files gets a usual one.

    Args:
        path: the name of the file.
        pages: memory of `pages_for`.
        size: the bytes of the file.

    Raises:
        OSError: if the file cannot be written.
    """
    pages = pages[: _whole(size)]
    pages[size:] = 0
    try:
        _write(path, pages, getattr(os, "O_DIRECT", 0))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _write(path, pages, 0)
    os.truncate(path, size)


def _whole(size: int) -> int:
    return -(-size // _PAGE_BYTES) * _PAGE_BYTES


def _write(path: str, pages: Array, flag: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flag, 0o666)
    try:
        at = 0
        while at < len(pages):
            at += os.pwrite(descriptor, pages[at : at + _AT_ONCE_BYTES].data, at)
    finally:
        os.close(descriptor)
