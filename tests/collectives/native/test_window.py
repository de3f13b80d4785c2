"""The memory that ranks share: zeros, without a name, and for processes of one user alone."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from collectives import Group
from collectives.errors import NativeError
from collectives.limits import usable_memory_bytes
from collectives.native import window
from collectives.native.window import CHUNK_BYTES, chunk_bytes, shared_memory
from collectives.transport.in_process import InProcessTransport

ALONE = Group(InProcessTransport())
SIZE = 5 * 4096


def test_memory_is_zero_has_no_name_and_cannot_shrink() -> None:
    memory, problem, file = shared_memory(ALONE, SIZE, 4096)
    assert memory is not None
    assert not problem
    status = os.fstat(file)
    assert status.st_nlink == 0
    assert status.st_blocks * 512 == 4096  # the pages of a room are reserved later
    assert memory[:] == bytes(SIZE)
    with pytest.raises(PermissionError):
        os.ftruncate(file, 4096)
    os.close(file)


def test_a_descriptor_goes_to_each_process_that_has_connected() -> None:
    file = window._created(SIZE, SIZE)
    with window._listening(3) as listening:
        name = listening.getsockname()[1:].decode()
        connections = [window._connected(name) for _ in range(3)]
        window._hand_out(listening, file)
        received = [window._received(connection) for connection in connections]
    os.close(file)
    memories = [mmap.mmap(each, 0) for each in received]
    memories[0][:3] = b"abc"
    assert memories[2][:3] == b"abc"
    for connection, each in zip(connections, received, strict=True):
        assert not os.get_inheritable(each)
        os.close(each)
        connection.close()


def test_a_process_of_another_user_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    file = window._created(SIZE, SIZE)
    with window._listening(1) as listening:
        name = listening.getsockname()[1:].decode()
        with window._connected(name) as connection:
            monkeypatch.setattr(os, "geteuid", lambda: -1)
            window._hand_out(listening, file)
            with pytest.raises(NativeError, match="no shared memory from the first rank"):
                window._received(connection)
        with pytest.raises(NativeError, match="that a process of another user offers"):
            window._connected(name)
    os.close(file)


def test_a_chunk_has_a_cache_line_for_each_rank() -> None:
    assert chunk_bytes(2) == chunk_bytes(2048) == CHUNK_BYTES
    assert chunk_bytes(2049) == 2 * CHUNK_BYTES


def test_the_limit_of_the_control_group_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, limit = tmp_path / "proc/self/cgroup", tmp_path / "sys/fs/cgroup/memory.max"
    for file_of_system in (group, limit):
        file_of_system.parent.mkdir(parents=True)
    group.write_text("0::/\n")
    monkeypatch.setattr(window, "usable_memory_bytes", lambda: usable_memory_bytes(tmp_path))
    total = usable_memory_bytes(tmp_path)
    limit.write_text("max\n")
    assert usable_memory_bytes(tmp_path) == total
    limit.write_text("800000\n")
    assert usable_memory_bytes(tmp_path) == 800000
    memory, problem, file = shared_memory(ALONE, 1 << 20, 100001)
    assert memory is None
    assert file == -1
    assert problem.startswith("a memory limit of 800,000 bytes, of which the ranks of this machine")
    assert "Raise the limit of the container" in problem
