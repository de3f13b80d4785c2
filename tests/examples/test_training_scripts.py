"""The training examples: each learns something in a few steps on two ranks, one in one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.proofs import proof

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"

FEW = {
    "train_wide_resnet.py": ["--epochs", "3"],
    "train_language_model.py": ["--steps", "60", "--hidden", "32", "--length", "6"],
    "train_transformer.py": ["--steps", "40", "--model-width", "32", "--length", "4"],
}


def check(script: str, last: dict[str, Any], ranks: int) -> None:
    assert last["ranks"] == ranks
    assert last["world"] == ("mpi" if ranks > 1 else "single-process")
    assert last["measured_step_seconds"] > 0
    if script == "train_wide_resnet.py":
        assert last["test_accuracy"] > 0.4
    elif script == "train_language_model.py":
        assert last["perplexity_before"] == pytest.approx(64, rel=0.05)
        assert last["test_perplexity"] < 25
    else:
        assert last["test_accuracy"] > 0.4


def test_learns_in_one_process(python: Callable[..., Any], tmp_path: Path) -> None:
    script = "train_language_model.py"
    # As a user's script runs: nothing stands for its interpreter.
    finished = python(EXAMPLES / script, *FEW[script], cwd=tmp_path, fresh=True)
    assert finished.returncode == 0, finished.stderr
    check(script, json.loads(finished.stdout.splitlines()[-1]), ranks=1)


@pytest.mark.parametrize(
    "script", [proof("train_wide_resnet.py"), "train_language_model.py", "train_transformer.py"]
)
def test_learns_on_two_ranks(script: str, mpirun: Callable[..., Any]) -> None:
    finished = mpirun(2, EXAMPLES / script, *FEW[script])
    assert finished.returncode == 0, finished.stderr
    check(script, json.loads(finished.stdout.splitlines()[-1]), ranks=2)
