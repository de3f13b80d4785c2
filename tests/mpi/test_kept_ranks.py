"""Choices of kept tensors, under mpirun: steps equal one device's, and memory is less."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "programs" / "kept_ranks.py"
WEIGHTS = 3 * 1024 * 1024 * 4  # bytes of all weights, and of all slots


def test_training_is_equal_and_the_peak_falls(mpirun: Callable[..., Any]) -> None:
    finished = mpirun(2, PROGRAM, "3", "1")
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout.splitlines()[-1])
    assert len(result["errors"]) == 3
    assert max(result["errors"]) <= 1e-12
    whole, pieces, again = (result["peaks"][name] for name in ("whole", "pieces", "gathered again"))
    for found in (whole, pieces, again):
        assert found["error"] <= 1e-5
    for kind in ("predicted", "measured"):
        # Half of the weights and of the slots goes, and the gathered weights come; then all of
        # these but the one in use go, too. An allocator's small blocks come and go beside them.
        assert pieces[kind] < whole[kind]
        assert again[kind] <= pieces[kind] - 0.99 * WEIGHTS / 4
