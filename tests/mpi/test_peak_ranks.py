"""The peak memory that a plan promises is about what its steps take on two ranks.

How near it is depends on how busy the machine is: where a rank waits for the other one, more
gradients are there at once than planned. ``python -m tests.oracles.equality --peaks`` measures more
strategies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "peak_ranks.py"

Mpirun = Callable[..., Any]


def test_steps_take_about_the_memory_that_was_predicted(mpirun: Mpirun, tmp_path: Path) -> None:
    result = tmp_path / "peaks.json"
    finished = mpirun(2, PROGRAM, result)
    assert finished.returncode == 0, finished.stderr
    for predicted, measured in json.loads(result.read_text()).values():
        # All gradients at once would be 4 MiB and a buffer more than planned, of 12 MiB.
        assert measured == pytest.approx(predicted, rel=0.4)
