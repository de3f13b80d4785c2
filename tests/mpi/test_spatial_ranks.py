"""Spatial splits under mpirun: halos travel between the ranks, forward and backward."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "programs" / "spatial_ranks.py"


def test_training_with_halos_equals_one_device(mpirun: Callable[..., Any]) -> None:
    finished = mpirun(4, PROGRAM, "2")
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout.splitlines()[-1])
    assert result["split"] == 5  # two convolutions, one transposed, two pools
    assert len(result["errors"]) == 2
    assert max(result["errors"]) <= 1e-12
