"""The command line of each MPI's launcher, and control lines in the ranks' standard error."""

from __future__ import annotations

import sys
import time

import pytest

from tensoropt.elastic.end_reasons import ending_of
from tensoropt.elastic.hosts import Host
from tensoropt.elastic.launcher import Cores, MPIRun

PROGRAM = """
import os
from tensoropt.elastic.rank_variables import tell_checkpoint
os.write(2, b"before\\x1e")
tell_checkpoint()
os.write(2, b"between\\n\\x1etensoropt check")
os.write(2, b"point\\x1e\\nafter\\n")
raise SystemExit(3)
"""


def test_what_ranks_write_is_passed_on_without_control_lines() -> None:
    written: list[bytes] = []
    launcher = MPIRun([sys.executable, "-c", PROGRAM], lambda _, piece: written.append(piece))
    run = launcher.start([Host("", 1)], {"TENSOROPT_RESTARTS": "0"})
    while run.status() is None:
        time.sleep(0.01)
    assert (run.status(), run.checkpoints) == (3, 2)
    assert b"".join(written).startswith(b"before\x1ebetween\nafter\n")
    assert launcher.answering([""]) == frozenset([""])


def test_a_job_goes_on_if_nobody_reads_its_output() -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError

    program = f"import os, time; os.write(2, b'first'); time.sleep(0.5){PROGRAM}"
    launcher = MPIRun([sys.executable, "-c", program], broken)
    run = launcher.start([Host("", 1)], {"TENSOROPT_RESTARTS": "0"})
    while run.status() is None:
        time.sleep(0.01)
    assert (run.status(), run.checkpoints) == (3, 2)


def test_the_command_line_of_each_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = MPIRun(["true"])
    hosts = [Host("a", 2), Host("b", 1)]
    environment = {"PATH": "/bin", "TENSOROPT_RESTARTS": "1", "HOME": "/"}
    monkeypatch.setattr(launcher, "_is_open_mpi", False)
    assert launcher.launch(hosts, environment)[1:] == ["-hosts", "a:2,b:1", "-np", "3"]
    assert launcher.launch([Host("", 2)], environment)[1:] == ["-np", "2"]
    monkeypatch.setattr(launcher, "_is_open_mpi", True)
    words = " ".join(launcher.launch(hosts, environment)[1:])
    assert words.endswith("--host a:2,b:1 -x PATH -x TENSOROPT_RESTARTS -np 3")


@pytest.mark.parametrize(
    ("cores", "mpich", "open_mpi"),
    [
        (Cores(), "-np 2", "--bind-to none --map-by :OVERSUBSCRIBE -np 2"),
        (Cores(3), "-np 2", "--bind-to none --map-by :OVERSUBSCRIBE -np 2"),
        (
            Cores(3, "core"),
            "-bind-to core:3 -np 2",
            "--bind-to core --map-by slot:PE=3:OVERSUBSCRIBE -np 2",
        ),
        (
            Cores(None, "socket"),
            "-bind-to socket -np 2",
            "--bind-to package --map-by :OVERSUBSCRIBE -np 2",
        ),
    ],
)
def test_cores_are_options_of_each_launcher(
    cores: Cores, mpich: str, open_mpi: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = MPIRun(["true"], cores=cores)
    for is_open_mpi, words in ((False, mpich), (True, open_mpi)):
        monkeypatch.setattr(launcher, "_is_open_mpi", is_open_mpi)
        assert " ".join(launcher.launch([Host("", 2)], {})[1:]) == words


def test_threads_are_variables_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    program = "import os; print(os.environ['TENSOROPT_THREADS'], os.environ['OMP_NUM_THREADS'])"
    written: list[bytes] = []
    launcher = MPIRun(
        [sys.executable, "-c", program], lambda _, piece: written.append(piece), Cores(3)
    )
    run = launcher.start([Host("", 1)], {})
    while run.status() is None:
        time.sleep(0.01)
    assert b"".join(written) == b"3 5\n"


@pytest.mark.parametrize(
    ("status", "errors", "is_lost", "host"),
    [
        (0, "anything", False, ""),
        (1, "tensoropt: rank 1 ends the job, after ValueError.\n", False, ""),
        (1, "tensoropt: rank 1 ends the job: TransportError: a peer\n", True, ""),
        (3, "", False, ""),
        (137, "process rank 1 with PID 9 on node m2.a exited on\nsignal 9 (Killed).", True, "m2"),
        (1, "No rank on m2 answers: see. The job ends, by COLLECTIVES_LOST_SECONDS=6", True, "m2"),
        (1, "rank 1, which does not answer. The job ends, by COLLECTIVES_LOST_SECONDS", True, ""),
        (-9, "No rank on m2 answers", True, "m2"),
        (143, "", True, ""),
    ],
)
def test_the_reason_of_an_end(status: int, errors: str, is_lost: bool, host: str) -> None:
    ending = ending_of(status, errors)
    assert (ending.is_lost, ending.host, ending.is_done) == (is_lost, host, status == 0)
