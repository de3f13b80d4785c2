"""The benchmark of collectives times every way of every kind, on ranks of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.collectives.measure import KINDS

# Two turns of a call: its ways are what is looked at, not their times.
PROGRAM = """
import sys
from pathlib import Path
from benchmarks.collectives import measure
measure._TURNS, measure._TURN_SECONDS = 2, 0.0
measure.main(Path(sys.argv[1]), measure.KINDS, [4096])
"""


def test_every_way_is_timed(mpirun: Callable[..., Any], tmp_path: Path) -> None:
    result = tmp_path / "times.json"
    finished = mpirun(2, "-c", PROGRAM, result)
    assert finished.returncode == 0, finished.stderr
    times = json.loads(result.read_text())
    assert set(times) == set(KINDS)
    for kind in KINDS:
        ways = {"ours", "host_call"} if kind == "in_graph" else {"ours", "mpich", "memcpy"}
        assert ways <= set(times[kind]["4096"])
    assert all(ms > 0 for of in times.values() for ways in of.values() for ms in ways.values())
