"""Ctrl-C is not lost: a `KeyboardInterrupt` that Python can only print comes once more."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

__all__ = ["install"]

_AGAIN_SECONDS = 0.02
_installed: Any = None


def install() -> None:
    """Let Ctrl-C come again where nothing can raise it: in finalizers and in callbacks from C.

    Python runs a signal's handler at the next call of a Python function. After a step that is often
    the finalizer of a buffer, out of which no exception gets: Python prints "Exception ignored in"
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
        # Not at once: this is still within what cannot raise.
        later = threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, [main, signal.SIGINT])
        later.daemon = True
        later.start()

    sys.unraisablehook = _installed = again
