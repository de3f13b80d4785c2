"""The native operator in training, and what happens where it cannot be had."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"

Mpirun = Callable[..., Any]


@pytest.mark.parametrize("carrier", ["mpi", "network"])
def test_training_is_the_same_as_with_host_calls(carrier: str, mpirun: Mpirun) -> None:
    finished = mpirun(2, PROGRAMS / "transport_training.py", carrier, "2")
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    native, host = found["mpi"], found["host"]
    assert native["CollectivesAllreduce"] > 0  # of small and large gradients
    assert native["CollectivesAllreduce"] + native["CollectivesMove"] >= native["calls"] > 0
    assert not native["PyFunc"]
    assert host["PyFunc"] >= host["calls"] > 0
    assert not host["CollectivesMove"] + host["CollectivesAllreduce"]


def test_all_ranks_have_it_or_none_and_the_first_says_why(mpirun: Mpirun) -> None:
    finished = mpirun(2, PROGRAMS / "native_fallback.py")
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    unknown = (
        "COLLECTIVES_NATIVE is 0 for collectives in Python, or 1 or not set for those in C++. Got "
        "'maybe' on rank 1."
    )
    assert found == {
        "compiler": ["Python"] * 2,
        "off": ["Python"] * 2,
        "unknown": [unknown] * 2,
        "none": ["Python"] * 2,
    }
    _, *notes = finished.stderr.partition("case compiler\n")[2].split("case ")
    compiler = finished.stderr.partition("case compiler\n")[2].partition("case ")[0]
    assert compiler.count("collectives run in Python, and steps are slower") == 1
    assert "Got false that ends with status 1:" in compiler
    assert "Name a compiler for C++17 in CXX" in compiler
    assert "COLLECTIVES_NATIVE=0 chooses Python without this note." in compiler
    assert "collectives run in Python" not in notes[0] + notes[1]
    assert "Got a memory limit of " in notes[2]
