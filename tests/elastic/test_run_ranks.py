"""A job under ``tensoropt run`` whose rank is killed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.conftest import RANK_ENV, Finished
from tests.oracles.restarts import training
from tests.oracles.restarts.histories import entries, surviving

PROGRAM = Path(training.__file__)


@pytest.mark.mpi
@pytest.mark.slow
def test_a_killed_rank_leaves_no_example_out_and_trains_none_again(
    python: Callable[..., Finished],
    rank_interpreter: list[str | Path],
    one_job: Callable[[], AbstractContextManager[None]],
    tmp_path: Path,
) -> None:
    words = ",".join(map(str, rank_interpreter))
    command = ["-m", "tests.oracles.restarts.supervised", words, "run", "-np", "2", PROGRAM]
    state = tmp_path / "state"
    with one_job():
        ended = python(
            *(*command, "--state", state, "--", "graph", tmp_path, "1", "50"),
            env={**RANK_ENV, "STEP_SECONDS": "0"},
        )
    assert ended.returncode == 0, ended.stderr
    told = [line for line in ended.stderr.splitlines() if line.startswith("tensoropt run: ")]
    assert [line.partition(": ")[2].partition(" after")[0] for line in told] == [
        "start 1 on 2 devices: this machine:2",
        "start 1 ended",
        "start 2 on 2 devices: this machine:2",
        "the script has ended,",
    ]
    assert "Killed (signal 9)" in told[1]
    logged = entries(tmp_path)
    assert surviving(logged).again_or_never == 0
    assert next(entry["step"] for entry in logged if entry["start"] == 1) == 48
    assert not state.exists()
