"""Batches padded to another length in each step, under mpirun against plain TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "programs" / "padded_ranks.py"


def test_lengths_share_a_program(mpirun: Callable[..., Any]) -> None:
    finished = mpirun(2, PROGRAM)
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout.splitlines()[-1])
    assert result["error"] <= 1e-12
    assert result["programs"] == [2, 2]
