"""The oracle of eager steps runs: its lines are within the bars."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def test_a_step_under_a_random_strategy_is_compared(python: Callable[..., Any]) -> None:
    finished = python("-m", "tests.oracles.eager.keras_steps", "quickstart", "0", "2:0")
    assert finished.returncode == 0, finished.stderr
    (line,) = (json.loads(each) for each in finished.stdout.splitlines() if each[:1] == "{")
    assert line["devices"] == 2
    assert 0 < line["of_bar"] <= 1
