"""Ctrl-C on the ranks that wait for the first rank's search."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tensoropt.frontend.planning import search_progress
from tensoropt.frontend.planning.search_progress import others_ignore_interrupt

WAITING: Any = SimpleNamespace(rank=1)


@pytest.fixture(autouse=True)
def handler() -> Iterator[Any]:
    """The handler before a test, which is there again after it."""
    before = signal.getsignal(signal.SIGINT)
    yield before
    signal.signal(signal.SIGINT, before)


def test_the_first_one_during_a_search_is_ignored(handler: Any) -> None:
    with others_ignore_interrupt(WAITING):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is handler


def test_one_that_comes_late_is_ignored_once() -> None:
    for _ in range(2):
        with others_ignore_interrupt(WAITING):
            pass
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_one_long_after_a_search_is_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with others_ignore_interrupt(WAITING):
        pass
    later = time.monotonic() + search_progress._LATE_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later + 1)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_searches_do_not_stack_handlers(handler: Any) -> None:
    for _ in range(3):
        with others_ignore_interrupt(WAITING):
            pass
    last: Any = signal.getsignal(signal.SIGINT)
    assert last.before is handler
