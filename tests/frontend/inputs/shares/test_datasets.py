"""The rows that processes make of a data set, put together, are the batches of one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_rows_of_all_processes_are_the_batches_of_one_process(python: Callable[..., Any]) -> None:
    finished = python(Path(__file__).with_name("datasets_program.py"))
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout.splitlines()[-1])
    assert report == {
        "map above a shuffle": [["doubled"], []],
        "map below a shuffle": [["named"], []],
        "repeat before and after": [["doubled"], []],
        "no remainder": [["doubled"], []],
        "the same order in each epoch": [["doubled"], []],
        "zipped": [["named, abs"], []],
    }
