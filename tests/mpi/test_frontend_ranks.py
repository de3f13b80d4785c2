"""The frontend on several ranks: one program, the same answers everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "frontend_ranks.py"
RANKS = 4

Mpirun = Callable[..., Any]


def found(folder: Path) -> dict[int, dict[str, Any]]:
    """What each rank that came to the end wrote."""
    files = {int(file.stem.removeprefix("found")): file for file in folder.glob("found*.json")}
    return {rank: json.loads(files[rank].read_text()) for rank in sorted(files)}


def test_all_ranks_run_one_program(mpirun: Mpirun, tmp_path: Path) -> None:
    finished = mpirun(RANKS, PROGRAM, "all", tmp_path)
    assert finished.returncode == 0, finished.stderr
    ranks = found(tmp_path)
    assert list(ranks) == list(range(RANKS))
    for rank, values in ranks.items():
        assert values["sizes"] == [rank, RANKS, rank, RANKS]
        assert values["summary"]["ranks"] == RANKS
        assert values["summary"]["world"] == "mpi"
        for key in ("losses", "last", "again"):  # bit for bit: every rank has the same program
            assert values[key] == ranks[0][key]
    assert ranks[0]["again"] == pytest.approx(ranks[0]["losses"][0], rel=1e-6)
    headers = [line for line in finished.stdout.splitlines() if line.startswith("devices")]
    assert len(headers) == 1  # profiling prints its table on one rank


def test_ranks_that_a_plan_does_not_need_end_cleanly(mpirun: Mpirun, tmp_path: Path) -> None:
    finished = mpirun(RANKS, PROGRAM, "fewer", tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert len(list(tmp_path.glob("before*"))) == RANKS
    ranks = found(tmp_path)
    assert list(ranks) == [0, 1]
    assert "Traceback" not in finished.stderr
    for rank, values in ranks.items():
        assert values["sizes"] == [rank, 2, rank, 2]
        assert values["summary"]["ranks"] == 2
        assert values["summary"]["world"] == "mpi"
        assert values["losses"] == ranks[0]["losses"]
    assert ranks[0]["again"] == pytest.approx(ranks[0]["losses"][0], rel=1e-6)
