"""A job on several machines measures its links once, and keeps them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensoropt.cost.measured_links import MeasuredLinks

PROGRAM = Path(__file__).parent / "programs" / "links_ranks.py"


def test_links_are_measured_once_and_planned_with(
    mpirun: Callable[..., Any], tmp_path: Path
) -> None:
    finished = mpirun(2, PROGRAM, tmp_path)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert finished.stderr.count("links of 2 machines measured in") == 1
    (path,) = tmp_path.iterdir()
    assert f"kept in {path}" in finished.stderr
    links = MeasuredLinks.load(path)
    assert (links.setting.hosts, links.within) == (("m0", "m1"), None)
    assert found["name"] == "2 machines of 1 rank"
    first, second = found["levels"]
    assert first == second
    assert [level["name"] for level in first] == ["machine", "rank"]
    assert first[0]["bandwidth_bytes_per_second"] == links.across.bandwidth_bytes_per_second
