"""During a search: its progress on standard error, and what Ctrl-C does."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from collectives import Group
from tensoropt.report.progress_bar import delayed_progress_bar

__all__ = ["interruptible", "others_ignore_interrupt"]

Found = TypeVar("Found")

# Kernels that take less to compile are not worth a line.
_LONG_SECONDS = 2.0


def interruptible(
    work: Callable[[], Found], finish: Callable[[Found], None] = lambda _: None
) -> Callable[[], Found]:
    """The same search, with its progress on standard error, which Ctrl-C ends early.

    The first Ctrl-C ends it with the best frontier so far and its proven gap. Before there is one,
    and at the second Ctrl-C, ``KeyboardInterrupt`` is raised. A line says how long it took to
    compile the search's kernels, where that was long.

    Args:
        work: the search.
        finish: takes what it has found, unless Ctrl-C has ended it.
    """

    def search() -> Found:
        from tensoropt.search.compilation import compiled_seconds
        from tensoropt.search.watch import Watch

        progress = delayed_progress_bar(sys.stderr)
        before = compiled_seconds()
        try:
            with Watch(progress) as watch:
                found = work()
        finally:
            progress("", 0, 0)
        compiled = compiled_seconds() - before
        if compiled > _LONG_SECONDS:
            sys.stderr.write(
                f"tensoropt: {compiled:.0f} s went into compiling the search's kernels, which are "
                "kept for later searches\n"
            )
        if watch.interrupted:
            sys.stderr.write("tensoropt: the search was interrupted; the best so far is used\n")
        elif watch.was_not_worth:
            sys.stderr.write(
                "tensoropt: a search has ended: going on would take longer than it can win in the "
                "job, of which steps=... says how many steps it makes\n"
            )
        elif watch.timed_out:
            sys.stderr.write("tensoropt: search_seconds ended a search; its best so far is used\n")
        if not watch.interrupted:
            finish(found)
        return found

    return search


@contextmanager
def others_ignore_interrupt(group: Group) -> Iterator[None]:
    """While the first rank searches, the others ignore the first Ctrl-C.

    A terminal sends it to all processes of a job; the first rank ends the search for all of them.
    At the second one ``KeyboardInterrupt`` is raised here, too.
    """
    if group.rank == 0 or threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.getsignal(signal.SIGINT)
    seen = 0

    def ignore_first(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1 and callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, ignore_first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
