"""Repeats a Ctrl-C whose `KeyboardInterrupt` Python could not raise but only print."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

__all__ = ["install"]

_AGAIN_SECONDS = 0.02
_installed: Any = None  # the unraisablehook of this module


def install() -> None:
    """Repeat Ctrl-C where nothing can raise it: in finalizers and in callbacks from C.

    Python runs a signal's handler at the next call of a Python function. After a step this is often
    the finalizer of a buffer, which cannot raise an exception: Python prints "Exception ignored in"
    and the script goes on.
    """
    global _installed
    if sys.unraisablehook is _installed:
        return
    before = sys.unraisablehook

    def again(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        main = threading.main_thread().ident
        assert main is not None, "started"
        # Later, because the finalizer or callback that cannot raise is still running.
        later = threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, [main, signal.SIGINT])
        later.daemon = True
        later.start()

    sys.unraisablehook = _installed = again
