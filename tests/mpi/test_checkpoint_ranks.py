"""Checkpoints under ``mpirun``: every rank writes, fewer ranks go on, all fail alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow

from tests.mpi.programs.checkpoint_ranks import batch, model

PROGRAM = Path(__file__).parent / "programs" / "checkpoint_ranks.py"
plain = tensorflow.compat.v1


def truth(steps: int) -> list[float]:
    with plain.Graph().as_default(), plain.Session() as session:
        features, loss, training = model()
        session.run(plain.global_variables_initializer())
        return [session.run([loss, training], {features: batch(n)})[0] for n in range(steps)]


def test_training_goes_on_on_fewer_ranks_and_errors_are_the_same_on_all(
    mpirun: Callable[..., Any], tmp_path: Path
) -> None:
    losses = []
    for ranks, last, more in ((3, 5, ["fail"]), (2, 9, [])):
        finished = mpirun(ranks, PROGRAM, tmp_path, str(last), *more)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        lines = [json.loads(line) for line in finished.stdout.splitlines() if line[:1] == "{"]
        (trained,) = [line for line in lines if "losses" in line]
        losses += trained["losses"]
        # The first job has drawn initial values, and counters of draws have a file of their own.
        assert trained["files"] == ranks + (last == 5)
        errors = [line["caught"] for line in lines if "caught" in line]
        assert len(errors) == (ranks if more else 0)
        for unshared, full, full_beside, missing in errors:
            assert [unshared, full, full_beside, missing] == errors[0]
            assert unshared.startswith("CheckpointError: a checkpoint is in a folder that all")
            for text in (full, full_beside):
                assert "on rank 1. See that all ranks can write" in text
            assert missing.startswith("ValueError: The passed save_path is not a valid")
        reader = plain.train.load_checkpoint(trained["path"])
        assert reader.get_tensor("global_step") == last
        assert reader.get_tensor("weights/Adam").shape == (96, 192)
    np.testing.assert_allclose(losses, truth(9), rtol=1e-4)
    assert not list(tmp_path.glob("*.saving"))
    assert plain.train.load_checkpoint(str(tmp_path / "full")).get_tensor("global_step") == 5
