"""Collectives between processes: each program checks much at once under mpirun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"

Mpirun = Callable[..., Any]


@pytest.mark.parametrize(
    ("ranks", "program", "arguments"),
    [
        (3, "collectives_numpy.py", []),
        (1, "collectives_numpy.py", []),
        (4, "collectives_tensorflow.py", []),
        (4, "collectives_tensorflow.py", ["native"]),
        (3, "collectives_native.py", []),
        (4, "collectives_network.py", []),
    ],
)
def test_program_passes_on_every_rank(
    ranks: int, program: str, arguments: list[str], mpirun: Mpirun
) -> None:
    is_fresh = program == "collectives_numpy.py"
    result = mpirun(ranks, PROGRAMS / program, *arguments, fresh=is_fresh)
    assert result.returncode == 0, result.stdout + result.stderr
    for rank in range(ranks):
        assert f"passed on rank {rank}" in result.stdout


def test_abort_ends_the_ranks_that_wait(mpirun: Mpirun) -> None:
    result = mpirun(2, PROGRAMS / "collectives_abort.py", fresh=True)
    assert result.returncode == 7
    assert not result.stdout
    assert "MPI_Abort" not in result.stderr


def test_a_job_of_another_mpi_is_found_out(mpirun: Mpirun) -> None:
    other = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}
    result = mpirun(1, PROGRAMS / "collectives_abort.py", env=other, fresh=True)
    assert result.returncode != 0
    assert "TransportError" in result.stderr
    assert "4 processes from Open MPI but 1 in" in result.stderr


def test_too_low_a_thread_level_is_found_out(mpirun: Mpirun) -> None:
    env = {"MPI4PY_RC_THREAD_LEVEL": "funneled"}
    result = mpirun(1, PROGRAMS / "collectives_abort.py", env=env, fresh=True)
    assert result.returncode != 0
    assert "TransportError" in result.stderr
    assert "at least serialized. Got funneled" in result.stderr
