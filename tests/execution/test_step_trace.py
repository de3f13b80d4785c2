"""Timelines of steps: which time is whose, and a file that Chrome reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tensoropt
from tensoropt.execution.step_trace import FIRST, LAST, overlap

tf = tensoropt


@pytest.mark.parametrize(
    ("computation", "communication", "expected"),
    [
        ([(0, 4)], [(4, 6)], (6, 4, 2, 0)),
        ([(0, 4), (2, 5)], [(3, 8)], (8, 5, 5, 2)),
        ([(0, 2), (6, 9)], [(1, 7), (3, 4)], (9, 5, 6, 2)),
        ([(5, 6)], [], (1, 1, 0, 0)),
        ([], [], (0, 0, 0, 0)),
    ],
)
def test_what_is_hidden_happens_while_something_computes(
    computation: list[tuple[int, int]],
    communication: list[tuple[int, int]],
    expected: tuple[int, int, int, int],
) -> None:
    found = overlap(*([(a * 10**6, b * 10**6) for a, b in of] for of in (computation, communication)))
    assert tuple(getattr(found, name) for name in found.__slots__) == expected
