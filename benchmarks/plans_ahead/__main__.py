"""``python -m benchmarks.plans_ahead``: the first step after the loss of a machine.

A job on simulated machines (`tests.machines`) of one rank each loses its last machine. In turns:
without and with ``tensoropt run --plan-ahead``. In both, the machine is lost as many seconds after
the checkpoint, once the search beside the job has ended. The last line is one JSON object: for each
way the median seconds from the start of the first rank's process to the end of its first step after
the loss, and the median milliseconds of a step before the checkpoint, in the seconds of the search
and in those after it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.plans_ahead.training import CHECKPOINT_STEP
from benchmarks.speed.models import MODELS
from tests.machines import Job, Link, machines

__all__ = ["main"]

_LIMIT_SECONDS = 600.0
_POLL_SECONDS = 0.05
_AFTER_SECONDS = 10.0  # of steps without a search, before the loss
_KEPT, _REUSED = "is kept, after a search", "used again"


@dataclass(frozen=True, slots=True)
class Turn:
    """The figures of one job.

    Attributes:
        first_step_seconds: from the start of the first rank's process after the loss.
        search_seconds: from the checkpoint to the end of the search beside the job; in a job
            without one, those of the job before.
        before_ms: a step before the checkpoint.
        beside_ms: a step in these seconds.
        after_ms: a step after them.
        reused: whether the start after the loss has used a kept plan.
    """

    first_step_seconds: float
    search_seconds: float
    before_ms: float
    beside_ms: float
    after_ms: float
    reused: bool


def main() -> None:
    """Run the jobs in turns, and end with the JSON line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plans_ahead", description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="transformer")
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--link", type=Link.parse, default=Link.parse("rate 1gbit"))
    options = parser.parse_args()
    turns: dict[str, list[Turn]] = {"ahead": [], "without": []}
    for number in range(options.turns):
        seconds = 0.0  # how long the search takes, which the first job of a turn tells
        for way in turns:
            made = _turn(options.model, options.machines, options.link, way == "ahead", seconds)
            seconds = made.search_seconds
            turns[way].append(made)
            print(f"turn {number + 1}, {way}: {made}", flush=True)
    print(json.dumps({way: _medians(figures) for way, figures in turns.items()}))


def _medians(turns: Sequence[Turn]) -> dict[str, float]:
    names = ("first_step_seconds", "search_seconds", "before_ms", "beside_ms", "after_ms")
    medians = {name: round(median(getattr(turn, name) for turn in turns), 2) for name in names}
    return {**medians, "reused": sum(turn.reused for turn in turns)}


def _turn(model: str, count: int, link: Link, is_ahead: bool, seconds: float) -> Turn:
    """Run one job, on new machines and without anything that is kept."""
    with tempfile.TemporaryDirectory() as name, machines(count, link) as made:
        folder = Path(name)
        hosts = folder / "hosts"
        hosts.write_text("".join(f"{machine.name}:1\n" for machine in made.nodes))
        command = [sys.executable, "-m", "tensoropt", "run", "-np", str(count)]
        command += ["--hosts", str(hosts), *(["--plan-ahead"] if is_ahead else [])]
        command += [str(Path(__file__).with_name("training.py")), "--", model, name]
        environment = {
            "COLLECTIVES_LOST_SECONDS": "8",
            "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path])),
            "TENSOROPT_PLANS": str(folder / "plans"),
            "TENSOROPT_PROFILE": "none",
            "TENSOROPT_PROFILES": str(folder / "profiles"),
            "TENSOROPT_RANK_SPEEDS": "equal",
            "TENSOROPT_VERBOSE": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **made.launcher_variables,
        }
        job = made.start(command, environment)
        try:
            _wait(job, lambda: len(_log(folder)) > CHECKPOINT_STEP)
            saved = _log(folder)[CHECKPOINT_STEP - 1][2]
            if is_ahead:
                _wait(job, lambda: _KEPT in job.output()[1])
                seconds = time.time() - saved
            _wait(job, lambda: time.time() - saved > seconds + _AFTER_SECONDS)
            made.end(made.nodes[-1])
            ended = job.wait(_LIMIT_SECONDS)
        finally:
            job.end()
        if ended.status:
            raise RuntimeError(f"a job ends well. Got {ended.status}:\n{ended.stderr}")
        return _figures(_log(folder), saved, seconds, _REUSED in ended.stderr)


def _figures(
    log: Sequence[tuple[int, float, float]], saved: float, seconds: float, reused: bool
) -> Turn:
    first = [ended for start, _, ended in log if start == 0]
    steps = [(ended, 1e3 * (ended - before)) for before, ended in pairwise(first)]
    _, begun, ended = next(entry for entry in log if entry[0] == 1)
    before = [took for at, took in steps if at <= saved]
    # The first step after the checkpoint has its time, too.
    beside = [took for at, took in steps if saved < at <= saved + seconds][1:]
    after = [took for at, took in steps if saved + seconds < at <= saved + seconds + _AFTER_SECONDS]
    return Turn(
        round(ended - begun, 2),
        round(seconds, 1),
        round(median(before), 1),
        round(median(beside), 1),
        round(median(after), 1),
        reused,
    )


def _log(folder: Path) -> list[tuple[int, float, float]]:
    """For each step the number of its start, and the times of `benchmarks.plans_ahead.training`."""
    path = folder / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(each["start"], each["begun"], each["ended"]) for each in map(json.loads, lines)]


def _wait(job: Job, until: Callable[[], bool]) -> None:
    """Wait for a condition.

    Raises:
        RuntimeError: if the job ends before it, or the time is over.
    """
    end = time.monotonic() + _LIMIT_SECONDS
    while not until():
        if not job.is_running() or time.monotonic() > end:
            raise RuntimeError(f"a job trains until it loses a machine. Got:\n{job.output()[1]}")
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    main()
