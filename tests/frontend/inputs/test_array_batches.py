"""Batches that ranks take from arrays are the batches of Keras's data set of the arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("array_batches_program.py")


def test_batches_of_arrays_are_those_of_keras(python: Callable[..., Any]) -> None:
    finished = python(PROGRAM)
    assert finished.returncode == 0, finished.stderr
