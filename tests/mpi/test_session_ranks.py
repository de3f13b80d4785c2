"""Drop-in sessions under ``mpirun``: the same losses as one process, and files written once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "session_ranks.py"


def test_a_monitored_script_trains_alike_on_any_number_of_ranks(
    mpirun: Callable[..., Any], tmp_path: Path
) -> None:
    results = {}
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        (folder / "other").mkdir(parents=True)
        finished = mpirun(ranks, PROGRAM, folder)
        assert finished.returncode == 0, finished.stderr
        lines = [line for line in finished.stdout.splitlines() if line.startswith("{")]
        assert len(lines) == 1
        results[ranks] = json.loads(lines[0])
    one, two = results[1], results[2]
    assert [len(losses) for losses in two["losses"]] == [6, 3]
    for losses, truth in zip(two["losses"], one["losses"], strict=True):
        assert losses == pytest.approx(truth, rel=1e-4)
    assert two["global_step"] == 9
    calls = [(tmp_path / "2" / f"rank{rank}" / "calls").read_text().split() for rank in range(2)]
    assert [len(each) for each in calls] == [9 * 8 // 2] * 2  # of nine steps with eight examples
    whole = (tmp_path / "1" / "rank0" / "calls").read_text().split()
    assert set(calls[0] + calls[1]) <= set(whole)
    for row, truth in zip(two["weights"], one["weights"], strict=True):
        assert row == pytest.approx(truth, rel=1e-3, abs=1e-6)
    assert two["events"] == one["events"]
    assert two["saved"] == ["numbered-3", "model.ckpt-3"]
    assert len(list((tmp_path / "2" / "supervised").glob("events*"))) == 1
