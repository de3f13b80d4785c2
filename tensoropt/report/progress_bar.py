"""A progress bar on one line of a terminal."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["delayed_progress_bar", "progress_bar"]

_WIDTH = 30  # of the bar, in characters
_FIRST_SECONDS = 1.0  # until the bar appears
_TERMINAL_SECONDS = 0.1  # between two drawings
_FIRST_LINE_SECONDS = 10.0  # until the first line of a log
_LOG_SECONDS = 60.0  # between two lines of a log


def progress_bar(stream: TextIO) -> Callable[[str, int, int], None]:
    """Return a function of (label, done, all) that draws a bar if the stream is a terminal.

    A call with 0 of 0 removes the bar.
    """
    if not stream.isatty():
        return lambda *_: None
    bar: Progress | None = None

    def draw(label: str, done: int, all_: int) -> None:
        nonlocal bar
        if all_ > 0:
            bar = bar or _started(stream, label, all_)
            bar.update(bar.task_ids[0], description=label, completed=done, total=all_, refresh=True)
        elif bar is not None:
            bar.stop()
            bar = None

    return draw


def _started(stream: TextIO, label: str, all_: int) -> Progress:
    """A bar of Rich, imported where a bar is drawn: few starts draw one."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    bar = Progress(
        *(BarColumn(_WIDTH), MofNCompleteColumn()),
        TextColumn("{task.description}", markup=False, table_column=rest),
        console=Console(file=stream),
        expand=True,
        auto_refresh=False,  # no thread beside those of a search
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task(label, total=all_)
    bar.start()
    return bar


def delayed_progress_bar(
    stream: TextIO, clock: Callable[[], float] = monotonic
) -> Callable[[str, int, int], None]:
    """Return a function like that of `progress_bar`, for work that often ends within a second.

    On a terminal, the bar appears after a second, and is drawn at most ten times a second. On
    another stream, a line is written after ten seconds, and then every minute.
    """
    is_terminal = stream.isatty()
    bar = progress_bar(stream)
    begun = clock()
    due = begun + (_FIRST_SECONDS if is_terminal else _FIRST_LINE_SECONDS)
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
            stream.write(
                f"tensoropt: searching strategies for {now - begun:.0f} s ({what}, {done} of "
                f"{all_}); Ctrl-C ends with the best so far\n"
            )
            stream.flush()

    return draw
