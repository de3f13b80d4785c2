"""Progress of a search on standard error, and the handling of Ctrl-C during a search."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from collectives import Group
from tensoropt.quiet.standard_error import write_note
from tensoropt.report.progress_bar import delayed_progress_bar

__all__ = ["interruptible", "others_ignore_interrupt"]

Result = TypeVar("Result")

_LATE_SECONDS = 5.0
"""The longest time by which a launcher is expected to pass Ctrl-C on late."""


def interruptible(
    work: Callable[[], Result], finish: Callable[[Result], None] = lambda _: None
) -> Callable[[], Result]:
    """A search that shows its progress on standard error, and that Ctrl-C ends early.

    The first Ctrl-C ends the search with the best frontier so far and its proven gap. The second
    one raises ``KeyboardInterrupt``, as does the first if there is no frontier yet. A line
    announces the compilation of the search's kernels if it takes long.

    Args:
        work: the search.
        finish: called with the result, unless Ctrl-C ended the search.
    """

    def search() -> Result:
        from tensoropt.search.compilation import compilation_announced
        from tensoropt.search.watch import Watch

        progress = delayed_progress_bar(sys.stderr)
        try:
            with Watch(progress) as watch, compilation_announced(_say_compiling):
                result = work()
        finally:
            progress("", 0, 0)
        if watch.interrupted:
            sys.stderr.write("tensoropt: the search was interrupted; the best so far is used\n")
        elif watch.was_not_worth:
            write_note(
                "a search has ended: the rest of it would take longer than it can save "
                "in this job; steps=... is the number of steps that the job makes"
            )
        elif watch.timed_out:
            write_note("search_seconds ended a search; its best so far is used")
        if not watch.interrupted:
            finish(result)
        return result

    return search


def _say_compiling() -> None:
    sys.stderr.write(
        "tensoropt: compiling the search's kernels, which are kept: a minute, or two, once\n"
    )
    sys.stderr.flush()


class _IgnoresFirst:
    """A handler of Ctrl-C that ignores the first one, and passes on the others.

    Args:
        before: the handler to which it passes them.
    """

    def __init__(self, before: Any) -> None:
        self.before = before
        self.ignored = False
        self.until = math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        is_first = not self.ignored and time.monotonic() < self.until
        self.ignored = True
        if not is_first and callable(self.before):
            self.before(number, frame)


@contextmanager
def others_ignore_interrupt(group: Group) -> Iterator[None]:
    """While the first rank searches, let the other ranks ignore the first Ctrl-C.

    A terminal sends Ctrl-C to all processes of a job, and the first rank ends the search for all.
    A launcher passes it on, on a busy machine after the first rank has ended the search: for some
    seconds, the other ranks ignore it afterwards. The second Ctrl-C raises ``KeyboardInterrupt`` on
    these ranks, too.
    """
    if group.rank == 0 or threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.getsignal(signal.SIGINT)
    if isinstance(before, _IgnoresFirst):  # of an earlier search
        before = before.before
    handler = _IgnoresFirst(before)
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if handler.ignored:
            signal.signal(signal.SIGINT, before)
        handler.until = time.monotonic() + _LATE_SECONDS
