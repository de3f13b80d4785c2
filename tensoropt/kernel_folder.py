"""A folder for compiled kernels where Numba finds none.

Numba keeps a compiled kernel beside its module, or else in the user's cache. Where it may write to
neither, as in a container that runs as another user than the one who installed the package, the
import of a kernel is an error.
"""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack
from pathlib import Path

from tensoropt.temporary_folder import temporary_folder

__all__ = ["find_kernel_folder"]

_VARIABLE = "NUMBA_CACHE_DIR"


def find_kernel_folder() -> None:
    """Let Numba keep kernels in a temporary folder if it may write to no other one.

    Each process then compiles the kernels that it calls. Must be called before a kernel is made.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    usual = Path(__file__).parent, Path(cache, "numba")
    if os.environ.get(_VARIABLE) or any(map(_may_write, usual)):
        return
    import numba

    stack = ExitStack()
    atexit.register(stack.close)
    folder = str(stack.enter_context(temporary_folder()))
    os.environ[_VARIABLE] = vars(numba.config)["CACHE_DIR"] = folder


def _may_write(folder: Path) -> bool:
    """Whether files can be written into a folder, which need not exist yet."""
    there = next(each for each in (folder, *folder.parents) if os.path.exists(each))
    return os.access(there, os.W_OK | os.X_OK)
