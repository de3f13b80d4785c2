"""The C library's allocator: what ranks ask of it, and what the user's environment decides."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from tensoropt.frontend.job.hardware import keep_freed_memory

ARENAS, THRESHOLD = -8, -3  # of mallopt(3)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """What is asked of a C library that accepts everything."""
    found: dict[int, int] = {}

    def mallopt(parameter: int, value: int) -> int:
        found[parameter] = value
        return 1

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    for name in ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    return found


def test_all_threads_share_an_arena(asked: dict[int, int]) -> None:
    assert keep_freed_memory()
    assert asked[ARENAS] == 1
    assert len(asked) == 3


def test_what_the_environment_sets_stays(
    asked: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    assert keep_freed_memory()
    assert ARENAS not in asked
    assert THRESHOLD in asked


def test_another_c_library_is_left_alone(
    asked: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    assert not keep_freed_memory()
    assert not asked
