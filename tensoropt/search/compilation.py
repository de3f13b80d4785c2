"""Kernels that are compiled while a search runs: once on a machine, and not of the search's time.

Numba compiles a kernel where it is first called, and keeps it on disk. All together that takes
longer than most searches do, and says nothing of them.
"""

from __future__ import annotations

import time

from numba.core.event import Event, Listener, register

__all__ = ["compiled_seconds", "search_clock"]


class _Compilation(Listener):
    """How long kernels have been compiled for; one at a time is, by Numba's lock, with all that it
    calls.

    Attributes:
        seconds: of those that are done.
        depth: how many are being compiled, each for the one before.
        begun: when the first of these was begun.
    """

    def __init__(self) -> None:
        self.seconds, self.depth, self.begun = 0.0, 0, 0.0

    def on_start(self, _: Event) -> None:
        if self.depth == 0:
            self.begun = time.monotonic()
        self.depth += 1

    def on_end(self, _: Event) -> None:
        if self.depth == 1:  # first, as other threads read the clock meanwhile
            self.seconds += time.monotonic() - self.begun
        self.depth -= 1


_compilation = _Compilation()
register("numba:compile", _compilation)  # type: ignore[no-untyped-call]


def compiled_seconds() -> float:
    """Seconds in which this process has compiled kernels so far."""
    return _compilation.seconds


def search_clock() -> float:
    """`time.monotonic` without these: it stands still while kernels are compiled."""
    now = _compilation.begun if _compilation.depth else time.monotonic()
    return now - _compilation.seconds
