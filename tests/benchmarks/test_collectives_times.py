"""The benchmark of collectives times every way of every kind, on ranks of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.collectives.measure import KINDS


def test_every_way_is_timed(mpirun: Callable[..., Any], tmp_path: Path) -> None:
    result = tmp_path / "times.json"
    finished = mpirun(2, "-m", "benchmarks.collectives.measure", result, ",".join(KINDS), "4096")
    assert finished.returncode == 0, finished.stderr
    times = json.loads(result.read_text())
    assert set(times) == set(KINDS)
    for kind in KINDS:
        ways = {"ours", "host_call"} if kind == "in_graph" else {"ours", "mpich", "memcpy"}
        assert ways <= set(times[kind]["4096"])
    assert all(ms > 0 for of in times.values() for ways in of.values() for ms in ways.values())
