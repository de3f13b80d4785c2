"""Pipelines under mpirun, each rank with its own stage alone, against plain TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.proofs import proof

PROGRAMS = Path(__file__).parent / "programs"
RANKS = 4


@pytest.mark.parametrize("pipelines", [2, proof(4)])  # 4: each script, and way to share the ranks
def test_pipelines_equal_one_device_and_scripts_see_whole_values(
    pipelines: int, mpirun: Callable[..., Any], tmp_path: Path
) -> None:
    finished = mpirun(RANKS, PROGRAMS / "stage_ranks.py", str(pipelines), tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    everyone = json.loads(finished.stdout.splitlines()[-1])
    assert len(everyone) == RANKS
    for seen in everyone:
        assert len(seen["errors"]) == pipelines
        assert max(seen["combined"]) <= 1e-10
        assert max(seen["errors"]) <= 1e-10
        assert seen["losses"] == pytest.approx(seen["right_losses"], rel=1e-12)
        assert float(seen["text"]) == pytest.approx(seen["losses"][0], rel=1e-9)
        labels, images = seen["failures"]
        assert "[labels]" in labels
        assert "images: Tensor had NaN or Inf values" in images
        for message in (labels, images):
            assert "This step has changed no variable on any rank." in message
        assert [name for name, _ in seen["trials"]][-1] == "data parallelism"
        assert len(seen["trials"]) >= 2
        assert all(measured for _, measured in seen["trials"])
        assert seen["trained"] == pytest.approx(seen["truth"], rel=1e-5)
        assert (seen["variables"], seen["saved"], seen["zeros"]) == (pytest.approx(0), 0, 0)
        own = {name: seen[name] for name in ("combined", "errors")}
        assert seen == {**everyone[0], **own}


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        proof("is_killed", "Killed (signal 9)"),
        ("is_out_of_memory", "rank 2 ends the job, after ResourceExhaustedError."),
        ("is_stopped", "', for a message: rank 2, which does not answer (stopped, stuck or out of"),
        ("has_another_order", "Got in the order of a pipeline's step as the first difference"),
    ],
    ids=lambda text: text if text.isidentifier() else "",
)
def test_a_rank_of_a_stage_that_fails_ends_the_job(
    case: str, reason: str, mpirun: Callable[..., Any]
) -> None:
    limits = {"COLLECTIVES_WARN_SECONDS": "0", "COLLECTIVES_ABORT_SECONDS": "15"}
    waits = case == "is_stopped"
    env = limits if waits else None
    finished = mpirun(3, PROGRAMS / "stage_failures.py", case, env=env, waits=waits)
    output = finished.stdout + finished.stderr
    assert finished.returncode != 0, output
    assert reason in output
    assert "went on" not in output
