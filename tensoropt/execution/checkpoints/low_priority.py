"""Work in C++ beside threads that compute."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["at_low_priority"]

_Result = TypeVar("_Result")

_LOWEST = 19  # Linux's niceness: some per cent of a core where others want all of it


def at_low_priority(work: Callable[[], _Result]) -> _Result:
    """Do work in a new thread that leaves cores to threads which want them, and wait for it.

    Linux has priorities of threads; a process may lower one, and not raise it again. Elsewhere the
    work has the usual priority.

    Args:
        work: a call that holds Python's lock for moments only. A thread that waits for a core
            while it holds the lock stops the others.

    Raises:
        BaseException: that of the work.
    """
    done: Future[_Result] = Future()

    def run() -> None:
        try:
            if sys.platform == "linux":
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result()
