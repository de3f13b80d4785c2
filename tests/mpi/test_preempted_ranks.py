"""SIGTERM on one rank: all stop at the same step, with a checkpoint of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

PROGRAM = Path(__file__).parent / "programs" / "preempted.py"


def test_all_ranks_stop_and_save(mpirun: Callable[..., Any], tmp_path: Path) -> None:
    finished = mpirun(2, PROGRAM, tmp_path)
    output = finished.stdout + finished.stderr
    assert finished.returncode == 128 + 15, output
    assert output.count("tensoropt: rank 1 has got SIGTERM.") == 1
    assert "Traceback" not in output
    done = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert done[0] == done[1] == 4
    saved = tf.train.latest_checkpoint(str(tmp_path / "saved"))
    assert saved is not None
    assert tf.train.load_variable(saved, "global_step") == done[0]
