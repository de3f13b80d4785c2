"""The end of launchers that do not end by themselves."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from collectives.transport.end_launcher import launcher

LAUNCHER = """
import subprocess, sys
others = subprocess.Popen(["sleep", "100"])
rank = subprocess.Popen(sys.argv[1:])
print(others.pid, rank.pid, flush=True)
rank.wait()
others.wait()
"""
RANK = """
import signal, time
from collectives.transport.end_launcher import end_later
end_later(0.5)
time.sleep(100)
"""
LIMIT_SECONDS = 60.0


def test_a_launcher_and_all_below_it_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PMI_FD", raising=False)
    named = tmp_path / "mpirun"
    named.symlink_to(sys.executable)
    command = [str(named), "-IS", "-c", LAUNCHER, sys.executable, "-c", RANK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        numbers = [int(number) for number in process.stdout.readline().split()]
        assert process.wait(LIMIT_SECONDS) == -9
    begun = time.monotonic()
    while any(_is_running(number) for number in numbers):
        assert time.monotonic() < begun + LIMIT_SECONDS
        time.sleep(0.01)


def test_the_topmost_launcher_above_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PMI_FD", raising=False)
    monkeypatch.setattr("os.getppid", lambda: 40)
    above = {40: ("sh", 30), 30: ("hydra_pmi_proxy", 20), 20: ("mpirun", 10), 10: ("bash", 1)}
    assert launcher({**above, 1: ("init", 0)}) == 20
    assert launcher({**above, 20: ("ssh", 10), 1: ("init", 0)}) == 30
    assert launcher({40: ("bash", 1), 1: ("init", 0)}) is None


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
