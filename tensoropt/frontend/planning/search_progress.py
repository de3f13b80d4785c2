"""While a strategy is looked for: how far the search is, and what Ctrl-C does."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from collectives import Group
from tensoropt.report.progress_bar import patient_progress
from tensoropt.search.watch import Watch

__all__ = ["patient_ranks", "watched"]

Found = TypeVar("Found")


def watched(work: Callable[[], Found]) -> Callable[[], Found]:
    """The same search with its progress on standard error, that an interruption ends early.

    At the first Ctrl-C the search ends with what it has, and says within what it is exact; where
    it has nothing yet, and at the second one, ``KeyboardInterrupt`` is raised.
    """

    def search() -> Found:
        progress = patient_progress(sys.stderr)
        try:
            with Watch(progress) as watch:
                found = work()
        finally:
            progress("", 0, 0)
        if watch.interrupted:
            sys.stderr.write("tensoropt: the search was interrupted, and ends with what it has\n")
        return found

    return search


@contextmanager
def patient_ranks(group: Group) -> Iterator[None]:
    """While the first rank searches, the others let the first Ctrl-C pass: a terminal sends it to
    all of a job, and the first rank's answer to it is everybody's. The second one is raised."""
    if group.rank == 0 or threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.getsignal(signal.SIGINT)
    seen = 0

    def let_pass(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1 and callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, let_pass)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
