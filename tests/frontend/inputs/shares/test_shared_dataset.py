"""The rows that processes make of a data set, put together, are the batches of one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("shared_dataset_program.py")


@pytest.mark.slow
def test_rows_of_all_processes_are_the_batches_of_one_process(python: Callable[..., Any]) -> None:
    finished = python(PROGRAM, "2", "2", "3", "4")
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout.splitlines()[-1])
    for_share = {name: share for name, (share, _) in report["pipelines"].items()}
    for_all = {name: whole for name, (_, whole) in report["pipelines"].items() if whole}
    assert for_share["map of batches"] == ["doubled", "scaled_batch"]
    assert for_share["zipped"] == ["named, abs"]
    assert for_share["arrays in Keras"] == ["grab_batch"]
    assert for_share["records"] == ["parsed"]
    assert for_share["padded"] == ["words"]
    assert for_all.pop("buckets")[-1] == "words"
    assert for_all == {
        "cache": ["doubled"],
        "seeded draws": ["augmented"],
        "records": ["reader"],
        "filter and unbatch": ["<lambda>", "normalize"],
        "padded to the longest": ["words"],
        "ragged rows": ["words"],
        "arrays in Keras": ["permutation", "slice_batch_indices"],
        "arrays in order": ["permutation", "slice_batch_indices"],
    }
    assert report["calls"] == 10  # of 37 examples, in batches of 8 and 5, for one of four processes
    assert report["gathered"] == 5
    assert report["rounds"] == [2, 2, 2, 2, 2, 2, 4, 2, 2]  # of two full batches each
    reasons = report["refused"]
    assert "Python function" in reasons["generator"]
    assert "Python function" in reasons["Python"]
    assert "mix the rows" in reasons["mixed rows"]
    assert "mix the rows" in reasons["checks of batches"]
    assert "for whole batches" in reasons["draws for batches"]
    assert "parallel calls" in reasons["racing draws"]
    assert "deterministic=False" in reasons["racing files"]
    assert "cache in a file" in reasons["cache in a file"]
    assert "first rank has read" in reasons["read by the first rank"]
    assert "no rows" in reasons["no batches"]


@pytest.mark.proof
@pytest.mark.parametrize("processes", [2, 3, 4])
def test_rows_of_many_random_data_sets(processes: int, python: Callable[..., Any]) -> None:
    finished = python(PROGRAM, "60", str(processes))
    assert finished.returncode == 0, finished.stderr
