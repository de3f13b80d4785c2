"""The file that ranks share: as large as there is room for, and gone as soon as it is mapped."""

from __future__ import annotations

import fcntl
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from collectives import Group
from collectives.native import window
from collectives.native.window import CHUNK_BYTES, shared_memory
from collectives.transport.in_process import InProcessTransport

Usage = namedtuple("Usage", "total used free")
ALONE = Group(InProcessTransport())


def window_bytes(ranks: int, chunk_bytes: int) -> int:
    return 4096 + ranks * 3 * chunk_bytes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(window, "_FOLDER", tmp_path)
    return tmp_path


def test_memory_is_zero_and_its_file_has_no_name(folder: Path) -> None:
    memory, chunk, problem, _ = shared_memory(ALONE, window_bytes)
    assert memory is not None
    assert (chunk, problem) == (CHUNK_BYTES[0], "")
    assert memory[:] == bytes(window_bytes(1, chunk))
    assert not list(folder.iterdir())


def test_what_a_killed_process_left_is_removed(folder: Path) -> None:
    abandoned, locked = folder / "collectives-0", folder / "collectives-1"
    abandoned.touch()
    with open(locked, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        shared_memory(ALONE, window_bytes)
        assert list(folder.iterdir()) == [locked]


def test_with_little_room_chunks_are_smaller(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for chunk in CHUNK_BYTES:
        free = 4 * window_bytes(1, chunk)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: Usage(free, 0, free))
        assert shared_memory(ALONE, window_bytes)[1] == chunk


def test_with_none_the_reason_says_what_helps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1000, 0, 1000))
    memory, _, problem, _ = shared_memory(ALONE, window_bytes)
    assert memory is None
    assert "1,000 bytes free in " in problem
    assert "--shm-size" in problem
    monkeypatch.setattr(window, "_FOLDER", folder / "none")
    memory, _, problem, _ = shared_memory(ALONE, window_bytes)
    assert memory is None
    assert "which is Linux's shared memory" in problem
    assert not list(folder.iterdir())
