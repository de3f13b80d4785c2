"""The example scripts, run as a user runs them, in the single-process world."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def output_of(python: Callable[..., Any]) -> Callable[..., list[str]]:
    """The lines that a script writes to its standard output on so many devices."""

    def lines(script: str, *arguments: str, devices: int) -> list[str]:
        done = python(EXAMPLES / script, *arguments, env={"TENSOROPT_DEVICES": str(devices)})
        assert done.returncode == 0, done.stderr
        return list(done.stdout.splitlines())

    return lines


def test_listing_1(output_of: Callable[..., list[str]]) -> None:
    lines = output_of("listing1.py", devices=2)
    losses = [float(re.fullmatch(r"step \d+: loss (.*)", line)[1]) for line in lines]  # type: ignore[index]
    assert len(losses) == 10
    assert losses[-1] < losses[0]
    assert 2 < losses[0] < 6  # the entropy of 16 classes is 2.8, and the first guesses are bad


def test_train_digits(output_of: Callable[..., list[str]]) -> None:
    """The losses are the same on any number of devices, in every digit that is printed."""
    script = ("train_digits.py", "--hidden", "32", "--epochs", "4", "--batch", "240")
    lines = output_of(*script, devices=4)
    summary = json.loads(lines[-1])
    assert list(summary) == [
        "test_accuracy",
        "ranks",
        "world",
        "predicted_step_seconds",
        "measured_step_seconds",
        "predicted_network_seconds",
        "measured_network_seconds",
        "predicted_peak_bytes",
        "measured_peak_bytes",
        "advice",
    ]
    assert summary["ranks"] == 4
    assert summary["world"] == "single-process"
    assert summary["test_accuracy"] > 0.5
    assert 0 < summary["predicted_step_seconds"] < 1
    assert summary["measured_step_seconds"] > 0
    assert lines[0].startswith("plan mini_time on 4 devices: ")
    losses = [line for line in lines if line.startswith("epoch ")]
    assert losses == [line for line in output_of(*script, devices=1) if line.startswith("epoch ")]
    values = [float(line.rpartition(" ")[2]) for line in losses]
    assert len(values) == 4
    assert values == sorted(values, reverse=True)
