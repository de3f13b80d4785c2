"""A progress bar on one line of a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

__all__ = ["progress_bar"]

_WIDTH = 30
_CLEAR = "\r\x1b[K"


def progress_bar(stream: TextIO) -> Callable[[str, int, int], None]:
    """A function that is told (what, done, all), and draws it where the stream is a terminal.

    A call with 0 of 0 takes the bar away.
    """
    is_terminal = stream.isatty()

    def draw(what: str, done: int, all_: int) -> None:
        if not is_terminal:
            return
        if all_ == 0:
            stream.write(_CLEAR)
        else:
            filled = _WIDTH * done // all_
            bar = "#" * filled + "." * (_WIDTH - filled)
            stream.write(f"{_CLEAR}[{bar}] {done}/{all_} {what}")
        stream.flush()

    return draw
