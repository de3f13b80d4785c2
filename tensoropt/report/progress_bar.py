"""A progress bar on one line of a terminal."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TextIO

__all__ = ["delayed_progress_bar", "progress_bar"]

_WIDTH = 30  # of the bar, in characters
_CLEAR = "\r\x1b[K"
_FIRST_SECONDS = 1.0  # until the bar appears
_TERMINAL_SECONDS = 0.1  # between two drawings
_LOG_SECONDS = 10.0  # between two lines of a log


def progress_bar(stream: TextIO) -> Callable[[str, int, int], None]:
    """A function of (label, done, all) that draws a bar if the stream is a terminal.

    A call with 0 of 0 removes the bar.
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


def delayed_progress_bar(
    stream: TextIO, clock: Callable[[], float] = monotonic
) -> Callable[[str, int, int], None]:
    """A `progress_bar` that appears after the first second, for work that is often short.

    A terminal's bar is drawn at most ten times a second. To another stream, a line is written every
    ten seconds.
    """
    is_terminal = stream.isatty()
    bar = progress_bar(stream)
    begun = clock()
    due = begun + (_FIRST_SECONDS if is_terminal else _LOG_SECONDS)
    shown = False

    def draw(what: str, done: int, all_: int) -> None:
        nonlocal due, shown
        if all_ == 0:
            if shown:
                bar("", 0, 0)
            return
        now = clock()
        if now < due:
            return
        shown = True
        if is_terminal:
            due = now + _TERMINAL_SECONDS
            bar(f"{what}, {now - begun:.0f} s; Ctrl-C ends with the best so far", done, all_)
        else:
            due = now + _LOG_SECONDS
            stream.write(f"tensoropt: searching, {now - begun:.0f} s: {what} {done}/{all_}\n")
            stream.flush()

    return draw
