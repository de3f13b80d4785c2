"""Threads are started where there is work for them; who waits gets the same either way."""

from __future__ import annotations

import threading

import pytest

from tensoropt.search import threads


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_cores", lambda: 4)


def test_of_few_additions_the_caller_does_all() -> None:
    def where(item: int) -> tuple[int, bool]:
        return item, threading.current_thread() is threading.main_thread()

    assert threads.in_threads(where, range(5), additions=1e6) == [(n, True) for n in range(5)]
    assert threads.in_threads(where, range(5)) == [(n, False) for n in range(5)]
    assert threads.in_threads(where, [7]) == [(7, True)]


@pytest.mark.parametrize(
    ("additions", "expected"), [(0.0, 1), (1e6, 1), (2.5e7, 2), (1e12, 4), (float("inf"), 4)]
)
def test_as_many_threads_as_are_worth_it(additions: float, expected: int) -> None:
    assert threads.threads_for(additions) == expected
