"""Random strategies under mpirun against plain TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.proofs import proof

PROGRAM = Path(__file__).parent / "programs" / "equality_ranks.py"


@pytest.mark.parametrize("ranks", [proof(2), 4])
def test_training_equals_one_device(ranks: int, mpirun: Callable[..., Any]) -> None:
    finished = mpirun(ranks, PROGRAM, "2", str(ranks))
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout.splitlines()[-1])
    assert result["ranks"] == ranks
    assert (len(result["errors"]["float32"]), len(result["errors"]["float64"])) == (1, 2)
    assert max(result["errors"]["float32"]) <= 1e-5
    assert max(result["errors"]["float64"]) <= 1e-12
