"""Collectives and training through Horovod; without it, the tests so marked fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"

Mpirun = Callable[..., Any]

ENV = {"TENSOROPT_TRANSPORT": "horovod"}


@pytest.mark.horovod
def test_collectives_pass_on_every_rank_and_what_is_lacking_is_said_once(mpirun: Mpirun) -> None:
    finished = mpirun(4, PROGRAMS / "collectives_tensorflow.py", "horovod")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    for rank in range(4):
        assert f"passed on rank {rank}" in finished.stdout
    notes = [line for line in finished.stderr.splitlines() if "Horovod has no" in line]
    assert len(set(notes)) == len(notes)
    lacking = {line.partition("has no ")[2].partition(";")[0] for line in notes}
    types = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool")
    halos = {f"{kind} of {dtype}" for kind in ("exchange", "exchangesum") for dtype in types}
    assert lacking == halos | {"reducescatter by sum of uint8", "reducescatter by sum of bool"}


@pytest.mark.horovod
def test_training_is_the_same_as_with_host_calls(mpirun: Mpirun) -> None:
    finished = mpirun(2, PROGRAMS / "transport_training.py", "horovod", "1", env=ENV)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert found["horovod"]["Horovod"] >= found["horovod"]["calls"] > 0
    assert not found["horovod"]["CollectivesMove"]
    assert not found["host"]["Horovod"]


@pytest.mark.proof
@pytest.mark.horovod
def test_training_equals_one_device(mpirun: Mpirun) -> None:
    finished = mpirun(4, PROGRAMS / "equality_ranks.py", "1", "7", env=ENV)
    assert finished.returncode == 0, finished.stderr
    (errors,) = json.loads(finished.stdout.splitlines()[-1])["errors"].values()
    assert len(errors) == 1
    assert max(errors) <= 1e-12


def test_asking_for_it_without_having_it_says_how_to_get_it(mpirun: Mpirun) -> None:
    program = (
        "import sys; sys.modules['horovod'] = None\n"
        "import tensoropt; tensoropt.init(transport='horovod')"
    )
    finished = mpirun(2, "-c", program)
    assert finished.returncode != 0
    assert "TransportError: collectives through Horovod need one that was built" in finished.stderr
    assert "Got on rank 0: ModuleNotFoundError" in finished.stderr
    assert "HOROVOD_WITH_TENSORFLOW=1" in finished.stderr
    assert "pip install --no-build-isolation horovod==0.28.1" in finished.stderr


def test_ranks_ask_for_one_transport(mpirun: Mpirun) -> None:
    program = (
        "import os; rank = os.environ['PMI_RANK']\n"
        "os.environ['TENSOROPT_TRANSPORT'] = 'horovod' if rank == '1' else 'mpi'\n"
        "import tensoropt; tensoropt.init()"
    )
    finished = mpirun(2, "-c", program)
    assert finished.returncode != 0
    assert "`transport='horovod'` on rank 1, but `transport='mpi'` on rank 0" in finished.stderr
    assert "Pass init the same transport" in finished.stderr
