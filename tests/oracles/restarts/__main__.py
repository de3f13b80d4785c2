"""``python -m tests.oracles.restarts --losses N --seed S``: jobs that lose ranks and machines.

Each case runs a training of sixty steps under ``tensoropt run``, through one of three doors, on two
ranks of this machine or on simulated machines with one rank each. In each start a rank is killed or
stopped, or a machine is lost at a random moment: its link is lost without a word, is taken down,
all its processes stop, or it ends. A machine whose link was lost comes back during the next start.
A case is as expected if the job ends by itself with status 0, the steps that led to the last
weights train each example once in each epoch, and their losses are those of an uninterrupted job:
bit for bit if all starts had its number of ranks, within 1e-4 otherwise.

The program prints a line for each case. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.machines import Job, Machines, machines
from tests.oracles.forked_interpreter import forked_interpreter
from tests.oracles.restarts.histories import History, entries, surviving
from tests.oracles.restarts.losses import COMES_BACK, Case, draw_cases

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 420.0
POLL_SECONDS = 0.05
BACK_SECONDS = 3.0
TOLERANCE = 1e-4
ENVIRONMENT = {
    "COLLECTIVES_LOST_SECONDS": "8",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "PYTHONUNBUFFERED": "",
    "TENSOROPT_PROFILE": "none",
    "TENSOROPT_RANK_SPEEDS": "equal",  # else a loaded machine may get a plan in proportion
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Result:
    """How a job ended.

    Attributes:
        status: its exit status; None if it hung.
        struck: the number of losses that came before its end.
        returns: the number of machines that came back.
        devices: the number of ranks of each start.
        history: the surviving steps.
        output: standard error.
    """

    status: int | None
    struck: int
    returns: int
    devices: tuple[int, ...]
    history: History
    output: str


def main() -> int:
    """Run the cases; the status is 1 if one is not as expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracles.restarts", description=__doc__)
    parser.add_argument("--losses", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases whose name this regular expression is in")
    parser.add_argument("--show", action="store_true", help="the output of unexpected ones")
    options = parser.parse_args()
    chosen = [
        c for c in draw_cases(options.losses, options.seed) if re.search(options.only, str(c))
    ]
    names = ("jobs", "as_expected", "losses", "returns", "restarts", "hangs", "again_or_never")
    counts = dict.fromkeys((*names, "same_devices", "bitwise"), 0)
    worst = 0.0
    truths: dict[tuple[str, int], History] = {}
    with tempfile.TemporaryDirectory() as plans, forked_interpreter(ENVIRONMENT) as interpreter:
        environment = {**ENVIRONMENT, "TENSOROPT_PLANS": plans}
        for case in chosen:
            key = case.door, case.ranks
            if key not in truths:
                whole = Case(case.door, 0, (), False)
                alone = _run(whole, interpreter, environment, case.ranks)
                if alone.status != 0:
                    raise RuntimeError(f"{whole} ends without losses. Got:\n{alone.output}")
                truths[key] = alone.history
            result = _run(case, interpreter, environment, case.ranks)
            error = result.history.error(truths[key])
            is_same = set(result.devices) == {case.ranks}
            wrong = _unexpected(result, error, is_same)
            counts["jobs"] += 1
            counts["as_expected"] += not wrong
            counts["losses"] += result.struck
            counts["returns"] += result.returns
            counts["restarts"] += len(result.devices) - 1
            counts["hangs"] += result.status is None
            counts["again_or_never"] += result.history.again_or_never
            counts["same_devices"] += is_same
            counts["bitwise"] += error == 0
            worst = max(worst, error)
            devices = " ".join(map(str, result.devices))
            told = "; ".join(wrong) or "as expected"
            print(f"{case}: {told}; devices {devices}; error {error:.1e}", flush=True)
            if wrong and options.show:
                print(result.output, flush=True)
    print(json.dumps({**counts, "worst_error": worst}))
    return 0 if counts["as_expected"] == len(chosen) else 1


def _unexpected(result: Result, error: float, is_same: bool) -> list[str]:
    """The differences between a job's end and the expected end."""
    if result.status is None:
        return ["it hung"]
    wrong = [] if result.status == 0 else [f"status {result.status}"]
    wrong += [] if result.history.again_or_never == 0 else ["examples again or never"]
    return wrong + ([] if error <= (0 if is_same else TOLERANCE) else [f"error {error:.1e}"])


def _run(
    case: Case, interpreter: list[str | Path], environment: dict[str, str], ranks: int
) -> Result:
    """Run a job with its losses."""
    with (
        tempfile.TemporaryDirectory() as name,
        machines(case.machines) if case.machines else nullcontext() as made,
        _job(case, interpreter, environment, ranks, Path(name), made) as job,
    ):
        struck, returns = _strike_all(case, job, Path(name), made)
        status = None if job.is_running() else job.wait(1).status
        output = job.output()[1]
        devices = re.findall(r"tensoropt run: start \d+ on (\d+) device", output)
        history = surviving(entries(Path(name)))
        return Result(status, struck, returns, tuple(map(int, devices)), history, output)


@contextmanager
def _job(
    case: Case,
    interpreter: list[str | Path],
    environment: dict[str, str],
    ranks: int,
    folder: Path,
    made: Machines | None,
) -> Iterator[Job]:
    """A job under ``tensoropt run``, which is killed at the end."""
    words = ",".join(map(str, interpreter))
    command = [sys.executable, "-m", "tests.oracles.restarts.supervised", words, "run"]
    command += ["-np", str(ranks), "--max-restarts", "5"]
    if made is not None:
        names = [machine.name for machine in made.nodes]
        names = names[::-1] if case.is_reversed else names
        (folder / "hosts").write_text("".join(f"{name}:1\n" for name in names))
        command += ["--hosts", str(folder / "hosts")]
    program = Path(__file__).with_name("training.py")
    command += [str(program), "--", case.door, str(folder)]
    if made is not None:
        job = made.start(command, {**environment, **made.launcher_variables})
    else:
        outputs = folder / "out", folder / "err"
        job = Job(command, {**os.environ, **environment}, outputs)
    try:
        yield job
    finally:
        job.end()
        if made is not None:
            made.go_on_everywhere()


def _strike_all(case: Case, job: Job, folder: Path, made: Machines | None) -> tuple[int, int]:
    """Cause the losses of a case; return the numbers of losses and of machines that came back."""
    end = time.monotonic() + LIMIT_SECONDS
    returns = 0

    def wait(until: Callable[[], bool]) -> bool:
        """Whether the condition comes before the job ends, or the time is over."""
        while job.is_running() and time.monotonic() < end:
            if until():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def reached(start: int, rank: int, steps: int) -> bool:
        """Whether a rank of a start runs, and the start has made so many steps."""
        runs = (folder / f"{start}.{rank}").exists()
        return runs and sum(entry["start"] == start for entry in entries(folder)) >= steps

    for start, loss in enumerate(case.losses):
        rank = loss.target if made is None else 0
        if not wait(partial(reached, start, rank, loss.steps)):
            return start, returns
        time.sleep(loss.delay_seconds)
        loss.strike(folder, start, made)
        if (
            made is not None
            and loss.fault in COMES_BACK
            and wait(partial(reached, start + 1, 0, 1))
        ):
            time.sleep(BACK_SECONDS * loss.delay_seconds)
            loss.bring_back(made)
            returns += 1
    wait(lambda: False)
    return len(case.losses), returns


if __name__ == "__main__":
    sys.exit(main())
