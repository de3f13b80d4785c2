"""Training on two machines, beside plain TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Finished
from tests.machines.conftest import Pair

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("ranks", [1, 2])
def test_strategies_a_pipeline_and_a_checkpoint(ranks: int, pair: Pair, tmp_path: Path) -> None:
    ended = pair.mpirun(ranks, PROGRAMS / "graph_ranks.py", tmp_path)
    assert ended.status == 0, ended.stderr
    found = json.loads(ended.of_rank(0)[-1])
    assert found["hosts"] == ["m1", "m2"]
    assert found["resumed"] is True
    assert len(found["errors"]) == 3
    assert max(found["errors"]) <= 1e-12


def test_a_keras_model(pair: Pair, python: Callable[..., Finished], tmp_path: Path) -> None:
    program = PROGRAMS / "keras_ranks.py"
    alone = python(program, tmp_path)
    assert alone.returncode == 0, alone.stderr
    truth = json.loads(alone.stdout.splitlines()[-1])
    ended = pair.mpirun(1, program, tmp_path)
    assert ended.status == 0, ended.stderr
    found = json.loads(ended.of_rank(0)[-1])
    assert found["is_saved"] is True
    assert found["losses"] == pytest.approx(truth["losses"], rel=1e-5)
    assert found["sums"] == pytest.approx(truth["sums"], rel=1e-4, abs=1e-5)


def test_a_folder_that_is_not_shared_is_an_error_before_training(
    pair: Pair, tmp_path: Path
) -> None:
    for machine in pair.machines.nodes:
        pair.machines.hide(tmp_path, machine)
    ended = pair.mpirun(1, PROGRAMS / "graph_ranks.py", tmp_path / "checkpoints", "unshared")
    assert ended.status != 0
    assert "step" not in ended.stdout
    assert "CheckpointError" in ended.stderr, ended.stderr
    assert "in a file system that all machines share." in ended.stderr
