"""The life of a process that works beside a job: it ends with the rank that has started it."""

from __future__ import annotations

import os
import threading

__all__ = ["end_with", "finishing"]

finishing = threading.Lock()
"""Held while files are written: the process does not end within them."""


def end_with(life: int) -> None:
    """End this process when a pipe ends.

    Args:
        life: the descriptor of the pipe's end to read.
    """

    def wait() -> None:
        os.read(life, 1)
        with finishing:
            os._exit(0)

    threading.Thread(target=wait, name="end", daemon=True).start()
