"""Time spent compiling kernels, which is not part of a search's time.

Numba compiles a kernel at its first call and keeps it on disk. All kernels together take longer to
compile than most searches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numba.core.event import Event, Listener, register

__all__ = ["compilation_announced", "compiled_seconds", "search_clock"]

_LONG_SECONDS = 2.0
"""Compilation that takes less in all is not announced."""


class _Compilation(Listener):
    """Measures how long kernels have been compiled.

    Numba's lock lets one thread compile at a time, with all callees of its kernel.

    Attributes:
        seconds: of finished compilations.
        depth: the number of nested compilations in progress.
        begun: when the outermost of these began.
        announce: called once when `seconds` exceed `long`; None where nothing is announced.
        long: seconds of compilation to announce.
    """

    def __init__(self) -> None:
        self.seconds, self.depth, self.begun = 0.0, 0, 0.0
        self.announce: Callable[[], None] | None = None
        self.long = 0.0

    def on_start(self, _: Event) -> None:
        if self.depth == 0:
            self.begun = time.monotonic()
        self.depth += 1

    def on_end(self, _: Event) -> None:
        if self.depth == 1:  # first, as other threads read the clock meanwhile
            self.seconds += time.monotonic() - self.begun
        self.depth -= 1
        if self.depth == 0 and self.seconds > self.long and self.announce is not None:
            announce, self.announce = self.announce, None
            announce()


_compilation = _Compilation()
register("numba:compile", _compilation)  # type: ignore[no-untyped-call]


def compiled_seconds() -> float:
    """Return the seconds in which this process has compiled kernels so far."""
    return _compilation.seconds


@contextmanager
def compilation_announced(announce: Callable[[], None]) -> Iterator[None]:
    """Call a function once, while kernels are compiled, if that takes long."""
    _compilation.announce, _compilation.long = announce, compiled_seconds() + _LONG_SECONDS
    try:
        yield
    finally:
        _compilation.announce = None


def search_clock() -> float:
    """Return `time.monotonic` less compilation: the clock stands still while kernels are
    compiled."""
    now = _compilation.begun if _compilation.depth else time.monotonic()
    return now - _compilation.seconds
