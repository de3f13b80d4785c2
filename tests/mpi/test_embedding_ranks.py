"""Embedding tables split by rows under mpirun against plain TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "programs" / "embedding_ranks.py"


def test_embeddings_train_as_on_one_device(mpirun: Callable[..., Any]) -> None:
    finished = mpirun(4, PROGRAM, "2", "1")
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout.splitlines()[-1])
    assert len(result["errors"]) == 6
    assert result["by_rows"] >= 3
    assert max(result["errors"]) <= 1e-12
