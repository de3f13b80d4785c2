"""Tests run in forked workers: each once, with its own output; one whose worker dies has failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import python_path

TESTS = """
import os, signal, time
import pytest

@pytest.fixture(scope="module", autouse=True)
def process():
    open(f"process{os.getpid()}", "w").close()
    yield
    open(f"finished{os.getpid()}", "w").close()

@pytest.mark.parametrize("number", range(45))
def test_many(number):
    time.sleep(0.01)
    os.mkdir(str(number))
    print("output", "of", number)
    assert number != 7
"""
DIES = "import os, signal; test_dies = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
STARTS_A_THREAD = "import threading, time; threading.Thread(target=time.sleep, args=[1]).start()\n"


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.workers", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "--workers", "3", *arguments],
        cwd=folder,
        env=python_path(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_test_runs_once_and_its_output_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_many.py").write_text(TESTS)
    done = _run(tmp_path)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "1 failed, 44 passed" in done.stdout
    assert done.stdout.count("output of") == done.stdout.count("output of 7\n") == 1
    assert not done.stderr
    processes = [path.name.removeprefix("process") for path in tmp_path.glob("process*")]
    finished = [path.name.removeprefix("finished") for path in tmp_path.glob("finished*")]
    assert len(processes) > 1
    assert sorted(processes) == sorted(finished)


def test_workers_stop_at_the_first_failure(tmp_path: Path) -> None:
    (tmp_path / "test_many.py").write_text(TESTS)
    done = _run(tmp_path, "-x")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "stopping after 1 failures" in done.stdout
    assert not (tmp_path / "19").exists()


def test_a_worker_that_dies_fails_the_tests_that_it_had_taken(tmp_path: Path) -> None:
    (tmp_path / "test_many.py").write_text(TESTS)
    (tmp_path / "test_one.py").write_text(DIES)
    done = _run(tmp_path)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 failed, 44 passed" in done.stdout
    assert "FAILED test_one.py::test_dies - Every test has to end." in done.stdout
    assert "-9" in done.stdout


def test_a_thread_that_runs_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_thread.py").write_text(STARTS_A_THREAD + TESTS)
    done = _run(tmp_path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "Got 1 beside the main thread; build graphs in tests" in done.stdout + done.stderr
