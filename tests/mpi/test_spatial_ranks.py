"""Spatial splits under mpirun: halos travel between the ranks, forward and backward."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "spatial_ranks.py"


@pytest.mark.parametrize("ranks", [2, 4])
def test_training_with_halos_equals_one_device(ranks: int, mpirun: Callable[..., Any]) -> None:
    finished = mpirun(ranks, PROGRAM, "3")
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout.splitlines()[-1])
    assert result["split"] == 5  # two convolutions, one transposed, two pools
    assert len(result["errors"]) == 3
    assert max(result["errors"]) <= 1e-12
