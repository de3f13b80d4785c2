"""Checkpoints, SavedModels and summaries of TensorFlow 2 on two ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

PROGRAM = Path(__file__).parent / "programs" / "saving_ranks.py"


@pytest.mark.slow
def test_two_ranks_save_and_resume_as_plain_tensorflow_does(
    mpirun: Callable[..., Any], python: Callable[..., Any], tmp_path: Path
) -> None:
    alone, ranks = tmp_path / "alone", tmp_path / "ranks"
    plain = python(PROGRAM, alone)
    assert plain.returncode == 0, plain.stderr
    finished = mpirun(2, PROGRAM, ranks)
    assert finished.returncode == 0, finished.stderr
    truth = json.loads(plain.stdout.splitlines()[-1])
    lines = [line for line in finished.stdout.splitlines() if line.startswith("{")]
    found = sorted(map(json.loads, lines), key=lambda each: each["rank"])
    assert [each.pop("rank") for each in found] == [0, 1]
    assert found[0] == found[1]
    errors = found[0].pop("refused")
    assert "Got tf.summary in a step" in errors["summary"]
    assert found[0]["goes_on"]
    for name in ("keras", "tf_keras"):
        own, other = found[0][name], truth[name]
        for each in (own, other):
            each["numbers"] = [*each.pop("losses"), *each["resumed"].pop("losses")]
            each["numbers"].append(each.pop("exported"))
        assert own.pop("numbers") == pytest.approx(other.pop("numbers"), rel=1e-5)
        assert own == other
        _same_files(alone / name, ranks / name)


def _same_files(alone: Path, ranks: Path) -> None:
    """Plain TensorFlow reads the same values."""
    names = [
        sorted(
            {
                each.name.partition(".data-")[0]  # Ranks write one file each.
                for each in folder.rglob("*")
                if "tfevents" not in each.name
            }
        )
        for folder in (alone, ranks)
    ]
    assert names[0] == names[1]
    assert len(list((ranks / "summaries").iterdir())) == 1
    latest = tf.train.latest_checkpoint(ranks / "managed")
    assert latest is not None
    assert tf.io.gfile.exists(f"{latest}.data-00002-of-00003")  # Each rank has written its slices.
    own, other = tf.train.load_checkpoint(latest), tf.train.load_checkpoint(alone / "managed")
    shapes = other.get_variable_to_shape_map()
    assert own.get_variable_to_shape_map() == {**shapes, "tensoropt/steps": []}
    for name in shapes.keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"}:
        np.testing.assert_allclose(own.get_tensor(name), other.get_tensor(name), 1e-5, 1e-6)
