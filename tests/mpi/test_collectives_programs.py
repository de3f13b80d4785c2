"""Collectives between processes: each program checks much at once under mpirun."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import collectives

PROGRAMS = Path(__file__).parent / "programs"


def mpirun(program: str, ranks: int, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of this folder on some ranks, with this interpreter."""
    own = str(Path(sys.executable).parent)
    launcher = shutil.which("mpirun", path=os.pathsep.join([own, os.environ.get("PATH", "")]))
    assert launcher is not None, "these tests need mpirun: install MPICH (pip install mpich)"
    root = str(Path(collectives.__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2", **variables}
    command = [launcher, "-np", str(ranks), sys.executable, str(PROGRAMS / program)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("program", "ranks"), [("collectives_numpy.py", 3), ("collectives_tensorflow.py", 4)]
)
def test_program_passes_on_every_rank(program: str, ranks: int) -> None:
    result = mpirun(program, ranks)
    assert result.returncode == 0, result.stdout + result.stderr
    for rank in range(ranks):
        assert f"passed on rank {rank}" in result.stdout


def test_one_rank_under_mpirun_is_a_world_of_one() -> None:
    result = mpirun("collectives_numpy.py", 1)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "passed on rank 0" in result.stdout


def test_abort_ends_the_ranks_that_wait() -> None:
    result = mpirun("collectives_abort.py", 2)
    assert result.returncode != 0
    assert "rank 0 started" in result.stdout
    assert "unreachable" not in result.stdout


def test_a_job_of_another_mpi_is_found_out() -> None:
    result = mpirun("collectives_abort.py", 1, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="4")
    assert result.returncode != 0
    assert "TransportError" in result.stderr
    assert "4 processes from Open MPI but 1 in" in result.stderr


def test_too_low_a_thread_level_is_found_out() -> None:
    result = mpirun("collectives_abort.py", 1, MPI4PY_RC_THREAD_LEVEL="funneled")
    assert result.returncode != 0
    assert "TransportError" in result.stderr
    assert "at least serialized. Got funneled" in result.stderr
