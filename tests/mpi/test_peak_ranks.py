"""The peak memory that a plan promises is what its steps take on two ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "peak_ranks.py"

Mpirun = Callable[..., Any]


def test_steps_take_the_memory_that_was_predicted(mpirun: Mpirun, tmp_path: Path) -> None:
    result = tmp_path / "peaks.json"
    finished = mpirun(2, PROGRAM, result)
    assert finished.returncode == 0, finished.stderr
    for predicted, measured in json.loads(result.read_text()).values():
        assert measured == pytest.approx(predicted, rel=0.1)
