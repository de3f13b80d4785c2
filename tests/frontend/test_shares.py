"""Each rank makes its rows of a batch and no others, and trains as one process does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.conftest import Finished

PROGRAM = Path(__file__).parent / "shares_program.py"
RANKS, EXAMPLES, EPOCHS = 2, 72, 2


def test_ranks_that_make_their_rows_train_as_one_process(
    mpirun: Callable[..., Finished], python: Callable[..., Finished], tmp_path: Path
) -> None:
    alone, parallel = tmp_path / "alone", tmp_path / "parallel"
    alone.mkdir()
    parallel.mkdir()
    truth = python(PROGRAM, alone, env={"COLLECTIVES_TRANSPORT": "single"})
    assert truth.returncode == 0, truth.stderr
    finished = mpirun(RANKS, PROGRAM, parallel)
    assert finished.returncode == 0, finished.stderr
    wanted, found = (
        json.loads(next(line for line in each.stdout.splitlines() if line.startswith("{")))
        for each in (truth, finished)
    )
    assert found.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5, err_msg=name)
    for name in ("fit", "loop", "microbatches"):
        whole = (alone / f"{name}0").read_text().split()
        calls = [(parallel / f"{name}{rank}").read_text().split() for rank in range(RANKS)]
        assert [len(each) for each in calls] == [EPOCHS * EXAMPLES // RANKS] * RANKS
        assert sorted(value for each in calls for value in each) == sorted(whole)
    assert "rank 1 ran 8 rounds" in finished.stdout
    whole = (alone / "rounds0").read_text().split()
    calls = [(parallel / f"rounds{rank}").read_text().split() for rank in range(RANKS)]
    own = [[*whole[:16], *whole[32:48]], [*whole[16:32], *whole[48:64]]]
    assert [each[:32] for each in calls] == own
    # From two batches Keras learns the shapes, on each rank.
    assert "rank 1 made 2 batches of Python" in finished.stdout
    assert "the first rank makes the batches and sends the others their rows" in finished.stderr
    assert "every rank feeds the whole global batch" not in finished.stderr
    assert finished.stderr.count("steps waited for input") == 4  # in fit, and in each loop
