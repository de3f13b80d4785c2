"""The machines of a job's ranks, and the C library's allocator."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from collectives.transport.launch import Launch
from tensoropt.errors import OptionError
from tensoropt.frontend.job import hardware
from tensoropt.frontend.job.hardware import (
    Hardware,
    hardware_of,
    idle_cores,
    keep_freed_memory,
    rank_config,
)

ARENAS, THRESHOLD = -8, -3  # of mallopt(3)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Return the calls that a C library gets which accepts everything."""
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


def seen(
    monkeypatch: pytest.MonkeyPatch, bound: list[list[int]], limit: int | None, hosts: str = "aabb"
) -> Hardware:
    """The hardware of four ranks on these machines that are bound to these cores."""
    monkeypatch.setattr(hardware, "core_limit", lambda: limit)
    monkeypatch.setattr(hardware, "usable_memory_bytes", lambda: 1 << 30)

    def allgather(facts: list[object]) -> list[list[object]]:
        return [[cores, *facts[1:]] for cores in bound]

    group = SimpleNamespace(
        hosts=tuple(hosts),
        local_rank=lambda: 0,
        local_size=lambda: 2,
        allgather_object=allgather,
    )
    return hardware_of(group)  # type: ignore[arg-type]


def test_the_cores_of_a_machine_are_those_of_all_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = [[0, 1], [2, 3]]
    found = seen(monkeypatch, [*halves, *halves], 64)
    assert found == Hardware((2, 2), 4, 1 << 30)
    assert rank_config(found).intra_op_parallelism_threads == 2
    assert seen(monkeypatch, [[0, 1, 2], [0, 1, 2], *halves], 64).cores_per_host == 3
    assert seen(monkeypatch, [*halves, *halves], 3).cores_per_host == 3


def test_ranks_are_equally_fast_where_the_system_may_move_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_cores, some = [[0, 1]] * 4, [[0, 1], [0, 1], [0, 1], [1]]
    assert seen(monkeypatch, all_cores, 2, "aaaa").shares_cores
    assert not seen(monkeypatch, some, 2, "aaaa").shares_cores
    assert not seen(monkeypatch, all_cores, 2).shares_cores


def test_cores_that_a_launcher_withholds_are_named() -> None:
    bound = Hardware((2, 2), 2, 1 << 30)
    line = idle_cores(bound, 16, Launch("Open MPI", 4, 2))
    assert line.startswith("Open MPI binds the 2 ranks of a machine to 2 of its 16 cores; start")
    assert "srun --cpus-per-task=8 " in idle_cores(bound, 16, Launch("Slurm", 4, 2))
    assert not idle_cores(bound, 16, Launch("MPICH", 4, 2))
    assert not idle_cores(bound, 3, Launch("Open MPI", 4, 2))  # no whole core for each
    assert not idle_cores(bound, 16, None)


def test_demanded_threads_count_in_place_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOROPT_THREADS", "3")
    assert rank_config(Hardware((2,), 2, 2**30)).intra_op_parallelism_threads == 3
    assert not idle_cores(Hardware((2,), 2, 2**30), 16, Launch("Open MPI", 4, 2))
    for text in ("0", "-1", "two"):
        monkeypatch.setenv("TENSOROPT_THREADS", text)
        with pytest.raises(OptionError, match=f"Got '?(TENSOROPT_THREADS=)?{text}"):
            rank_config(Hardware((2,), 2, 2**30))
