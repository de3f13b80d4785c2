"""The example scripts, run as a user runs them, in the single-process world."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def output_of(script: str, *arguments: str, devices: int) -> list[str]:
    """The lines that a script writes to its standard output."""
    root = str(EXAMPLES.parent)
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        env={**os.environ, "TENSOROPT_DEVICES": str(devices), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_listing_1() -> None:
    lines = output_of("listing1.py", devices=2)
    losses = [float(re.fullmatch(r"step \d+: loss (.*)", line)[1]) for line in lines]  # type: ignore[index]
    assert len(losses) == 10
    assert losses[-1] < losses[0]
    assert 2 < losses[0] < 6  # the entropy of 16 classes is 2.8, and the first guesses are bad


def test_train_digits() -> None:
    lines = output_of(
        *("train_digits.py", "--hidden", "32", "--epochs", "4", "--batch", "240"), devices=4
    )
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
    assert 0 < summary["measured_step_seconds"] < 10
    assert lines[0].split() == [
        "operator",
        "type",
        "mesh",
        "maps",
        "time",
        "(us)",
        "memory",
        "(KiB)",
    ]
    assert sum(line.startswith("epoch ") for line in lines) == 4
