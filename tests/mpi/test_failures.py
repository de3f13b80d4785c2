"""What goes wrong on one rank stops all of them, with one reason that can be read.

Ranks that waited for one another would exceed the limit of a run, which is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.proofs import proof

PROGRAM = Path(__file__).parent / "programs" / "failures.py"
RANKS = 3

Mpirun = Callable[..., Any]

MISMATCHES = {
    "another_graph": [
        "in find_strategy(option='mini_time', algorithm='ft', validate=0) as the first difference",
        "`only_here = Relu(MatMul:0)",
        "on rank 2, but `Square = ",
        "on ranks 0 and 1. Build the graph from the same arguments",
    ],
    "a_run_alone_in_the_middle": [
        "Got run(loss:0) on rank 0, but run(GradientDescent) on ranks 1 and 2.",
        "out of conditions on the rank (`if rank() == 0:`)",
    ],
    "a_run_alone_at_the_end": [
        "Got run(loss:0) on rank 0, but the end of the script on ranks 1 and 2.",
        "out of conditions on the rank (`if rank() == 0:`)",
    ],
    "another_fetch": ["Got run(loss:0) on rank 2, but run(GradientDescent) on ranks 0 and 1."],
    "another_shape": [
        "in run(GradientDescent) as the first difference `feed_dict of 'features', shape [4, 4], ",
        " on rank 2, but `feed_dict of 'features', shape [8, 4], ",
        "Feed the whole global batch on every rank",
    ],
    "another_batch": [
        "in run(GradientDescent) as the first difference `feed_dict of 'features', shape [8, 4], "
        "values with checksum ",
        "Draw and shuffle batches with the same seed, and run the same steps on all ranks.",
    ],
    "exits": [
        "Got the end of the script on rank 2, but run(GradientDescent) on ranks 0 and 1.",
        "see that no rank ends or leaves a loop before the others",
    ],
}


class Failed:
    """How a run in which something goes wrong ended."""

    def __init__(
        self, mpirun: Mpirun, case: str, folder: Path, limits: dict[str, str] | None = None
    ) -> None:
        happened = folder / "happened"
        waits = limits is not None
        finished = mpirun(RANKS, PROGRAM, case, happened, env=limits, waits=waits)
        assert happened.exists(), finished.stdout + finished.stderr
        self.status: int = finished.returncode
        self.output: str = finished.stdout + finished.stderr
        self.last_lines = self.output.splitlines()[-40:]

    def lines_with(self, text: str) -> list[str]:
        return [line for line in self.last_lines if text in line]


# As where a rank runs alone, and as where a feed has other values.
REPEATS = ("another_fetch", "another_shape")


@pytest.mark.parametrize(
    "case", [proof(case) if case in REPEATS else case for case in sorted(MISMATCHES)]
)
def test_ranks_that_differ_stop_and_name_the_first_difference(
    case: str, mpirun: Mpirun, tmp_path: Path
) -> None:
    run = Failed(mpirun, case, tmp_path)
    assert run.status != 0
    (reason,) = run.lines_with("RankMismatchError")
    assert run.output.count("RankMismatchError") == 1
    for part in MISMATCHES[case]:
        assert part in reason


@pytest.mark.parametrize("case", ["raises", "fails_in_a_thread_with_hooks_from_before_init"])
def test_an_error_on_one_rank_ends_the_job(case: str, mpirun: Mpirun, tmp_path: Path) -> None:
    run = Failed(mpirun, case, tmp_path)
    assert run.status != 0
    assert run.output.count("the script's hook: the data of this rank is gone") == 1
    assert len(run.lines_with("ValueError: the data of this rank is gone")) == 1
    assert len(run.lines_with("rank 2 ends the job, after ValueError.")) == 1
    assert run.output.count("Traceback") == 1


def test_an_error_on_one_rank_before_init_ends_the_job(mpirun: Mpirun, tmp_path: Path) -> None:
    run = Failed(mpirun, "raises_before_init", tmp_path)
    assert run.status != 0
    assert len(run.lines_with("OSError: the data of this rank is gone")) == 1
    assert len(run.lines_with("a rank ends the job before init")) == 1


def test_an_error_on_one_rank_in_init_ends_the_job(mpirun: Mpirun, tmp_path: Path) -> None:
    run = Failed(mpirun, "asks_for_a_cluster_that_is_not_there", tmp_path)
    assert run.status != 0
    assert len(run.lines_with("rank 2 ends the job: PlanError: a cluster is one of")) == 1
    assert run.output.count("PlanError") == 1


def test_a_killed_rank_ends_the_job(mpirun: Mpirun, tmp_path: Path) -> None:
    run = Failed(mpirun, "is_killed", tmp_path)
    assert run.status != 0
    assert len(run.lines_with("Killed (signal 9)")) == 1
    assert "Traceback" not in run.output


def test_an_error_on_all_ranks_is_printed_once(mpirun: Mpirun, tmp_path: Path) -> None:
    run = Failed(mpirun, "trains_copies", tmp_path)
    assert run.status != 0
    (reason,) = run.lines_with("StateError")
    assert run.output.count("StateError") == 1
    assert "in a session of TensorFlow's: each of 3 ranks would train a copy." in reason


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        (
            "is_stopped_in_a_step",
            "of ranks 0, 1, 2. Not there: rank 2, which does not answer (stopped",
        ),
        ("never_starts", "in 'the start of MPI', to which every process of the job comes. The job"),
    ],
)
def test_a_rank_that_does_not_come_is_named_and_ends_the_job(
    case: str, rule: str, mpirun: Mpirun, tmp_path: Path
) -> None:
    limits = {"COLLECTIVES_WARN_SECONDS": "0", "COLLECTIVES_ABORT_SECONDS": "15"}
    run = Failed(mpirun, case, tmp_path, limits)
    assert run.status != 0
    assert rule in run.output
    assert "The job ends, by COLLECTIVES_ABORT_SECONDS=15." in run.output


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("in_a_step", "failed with InvalidArgumentError: indices[1] = 9 is not in [0, 1)"),
        ("before_collectives", "rank 2 ends the job, after InvalidArgumentError."),
    ],
)
def test_an_error_of_one_rank_ends_the_job_though_the_script_catches_it(
    case: str, reason: str, mpirun: Mpirun, tmp_path: Path
) -> None:
    run = Failed(mpirun, f"fails_alone_{case}", tmp_path)
    assert run.status != 0
    assert reason in run.output
    assert "indices[1] = 9 is not in [0, 1)" in run.output
    assert "went on" not in run.output


def test_an_error_in_a_step_of_all_ranks_may_be_caught(mpirun: Mpirun, tmp_path: Path) -> None:
    run = Failed(mpirun, "fails_everywhere_in_a_step", tmp_path)
    assert run.status == 0, run.output
    assert run.output.count("skipped") == RANKS
    assert run.output.count("went on") == RANKS


def test_a_check_of_one_rank_fails_on_all_and_changes_nothing(
    mpirun: Mpirun, tmp_path: Path
) -> None:
    run = Failed(mpirun, "fails_in_a_check_of_one_rank", tmp_path)
    assert run.status == 0, run.output
    skipped = [line for line in run.output.splitlines() if line.startswith("skipped: ")]
    for reason in ("ValueError: a bad batch", "features: Tensor had NaN or Inf values"):
        ranks = [line for line in skipped if reason in line]
        assert len(ranks) == RANKS
        assert len(set(ranks)) == 1
        assert "This step has changed no variable on any rank. It failed on rank 2." in ranks[0]
    # Two steps of the four, each of which takes 2 % of every weight.
    assert run.output.count(f"went on with {0.98**2:.4f}") == RANKS
