"""Temporary folders that do not stay behind when a launcher kills their process.

A rank whose job ends early is killed and removes nothing. Its folders are locked as long as it
lives; the first folder that another process makes removes those that no process has locked.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

__all__ = ["temporary_folder"]

# With the host: machines may share the folder above, and not see the locks of one another.
_PREFIX = f"tensoropt-folder-{socket.gethostname()}-"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A context with an empty folder of this process, which is removed at its end or, if the
    process is killed, by a later process."""
    _remove_abandoned(tempfile.gettempdir())
    with ExitStack() as stack:
        folder = _made(stack)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def _made(stack: ExitStack) -> Path:
    """A new folder, locked until the end of the stack."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(OSError):  # another process has removed it, or there are no locks
            _lock(folder, fcntl.LOCK_SH, stack)
        if folder.exists():
            return folder


@functools.cache
def _remove_abandoned(parent: str) -> None:
    for folder in Path(parent).glob(f"{_PREFIX}*"):
        # It is another user's, its process lives, a third one has just removed it, or the file
        # system has no locks.
        with ExitStack() as stack, suppress(OSError):
            _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB, stack)
            shutil.rmtree(folder, ignore_errors=True)


def _lock(folder: Path, how: int, stack: ExitStack) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    stack.callback(os.close, descriptor)
    fcntl.flock(descriptor, how)
