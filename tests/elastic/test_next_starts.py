"""The starts after a loss, and the priority of the search of their plans."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tensoropt.elastic.hosts import Host, next_starts, read_starts, write_starts

A, B, C = Host("a", 2), Host("b", 2), Host("c", 2)


def test_one_machine_is_lost() -> None:
    assert next_starts([A, B], [A, B], (), 4, 1) == ((0, 2), (2, 0))
    assert next_starts([A, B], [A, B], (), 4, 3) == ()
    assert next_starts([A], [A], (), 2, 1) == ()
    assert next_starts([A, B, C], [A, B, C], (), 6, 1) == ((0, 2, 2), (2, 0, 2), (2, 2, 0))


def test_a_machine_takes_further_ranks() -> None:
    assert next_starts([A, B], [A, Host("b", 1)], (), 3, 1) == ((0, 2), (2, 0))


def test_a_spare_machine_is_not_measured_yet() -> None:
    assert next_starts([A, B, C], [A, B], (), 4, 1) == ()
    assert next_starts([A, B, C], [A, B], ("c",), 4, 1) == ((0, 2), (2, 0))


def test_starts_as_text() -> None:
    for starts in ((), ((0, 2), (2, 0)), ((1,),)):
        assert read_starts(write_starts(starts)) == starts


def test_a_module_runs_on_idle_cores(tmp_path: Path) -> None:
    (tmp_path / "said.py").write_text(
        "import os, sys\n"
        "print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE, sys.argv[1:])\n"
    )
    life, end = os.pipe()
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ended = subprocess.run(
        [sys.executable, "-m", "tensoropt.elastic.idle_priority", str(life), "said", "7"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        pass_fds=[life],
    )
    os.close(life)
    os.close(end)
    assert ended.stdout == "19 True ['7']\n", ended.stderr
