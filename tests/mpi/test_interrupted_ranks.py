"""Ctrl-C while the first of two ranks searches: all go on with one strategy, or all end.

A search that is not interrupted stands still for longer than a run may take, which is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensoropt.plan import Plan

PROGRAM = Path(__file__).parent / "programs" / "interrupted_ranks.py"

Mpirun = Callable[..., Any]


class Interrupted:
    """How a run ended that somebody interrupted."""

    def __init__(self, mpirun: Mpirun, case: str, folder: Path) -> None:
        finished = mpirun(2, PROGRAM, case, folder)
        assert (folder / "pressed").exists(), finished.stdout + finished.stderr
        self.status: int = finished.returncode
        self.output: str = finished.stdout + finished.stderr
        self.found = [json.loads(file.read_text()) for file in sorted(folder.glob("found*.json"))]


def test_the_search_ends_with_what_it_has(mpirun: Mpirun, tmp_path: Path) -> None:
    run = Interrupted(mpirun, "goes_on", tmp_path)
    assert run.status == 0, run.output
    assert len(run.found) == 2
    assert run.found[0] == run.found[1]  # both have trained with the same plans
    plans = {case: Plan.from_json(answer["plan"]) for case, answer in run.found[0].items()}
    assert run.output.count("tensoropt: the search was interrupted") == 2

    some = plans["after_bounds"]
    assert " %: the search was interrupted" in " ".join(some.notes)
    assert some.within is not None
    assert len(some.frontier) > 1
    # The first rank alone decides.
    assert "interrupted" not in " ".join(plans["on_the_second_rank_alone"].notes)
    # At first nothing is known but data parallelism and what the first bounds' strategies are.
    least = plans["before_bounds"]
    assert "no proven gap: the search was interrupted" in " ".join(least.notes)
    assert least.within is None
    assert len(least.frontier) <= 2


@pytest.mark.parametrize("case", ["twice", "before_anything_is_known"])
def test_the_job_ends_where_there_is_nothing_to_go_on_with(
    case: str, mpirun: Mpirun, tmp_path: Path
) -> None:
    run = Interrupted(mpirun, case, tmp_path)
    assert run.status != 0
    assert not run.found
    assert run.output.count("ends the job, after KeyboardInterrupt.") == 1, run.output
