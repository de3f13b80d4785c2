"""``python -m tests.oracles.machine_faults``: machines are lost on purpose, and how jobs end.

A case is a fault of the last machine (its link goes down or loses 5 % of the packets, it is off
with its connections open, all its processes stop, or end) in a phase of a training (before the
plan, in a step, in a save, between steps), on two machines of one or two ranks. A case is as
expected if the job ends within its limit with one reason that names the host, no process is left on
any machine, and the checkpoint before is there. With lost packets the training succeeds. If the
processes of a machine end, MPICH's launcher ends the job before a rank can say why. The processes
of a stopped machine have to end when they go on.

The program prints a line for each case. The last line is one JSON object: the numbers of faults, of
silent machines, of silent machines that were named, of cases as expected, of jobs that hung and of
jobs that left processes, and the seconds of the slowest case from its fault to its end.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.machines import Machines, machines
from tests.oracles.forked_interpreter import forked_interpreter
from tests.oracles.machine_faults.cases import ABORT_SECONDS, Case, cases

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 180.0  # until the fault, on a loaded machine
LIMIT_SECONDS = ABORT_SECONDS + 20.0  # from the fault: messages, and a slow machine
LOSS_SECONDS = 120.0  # for a training whose packets are lost
LEAVING_SECONDS = 25.0  # for a machine out of reach, whose ranks wait themselves
POLL_SECONDS = 0.05
ENVIRONMENT = {
    "COLLECTIVES_WARN_SECONDS": "2",
    "COLLECTIVES_ABORT_SECONDS": str(ABORT_SECONDS),
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "PYTHONUNBUFFERED": "",
    "TENSOROPT_PLANS": "none",
    "TENSOROPT_PROFILE": "none",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",
}
REASON = re.compile(r".*(?:The job ends, by COLLECTIVES_ABORT_SECONDS|ends the job).*")


@dataclass(frozen=True, slots=True)
class Result:
    """How a case ended.

    Attributes:
        hung: whether the job exceeded its limit.
        seconds: time from the fault to the end.
        output: standard output and error.
        left: processes that were left on machines.
        saved: name of the newest checkpoint; empty for none.
    """

    hung: bool
    seconds: float
    output: str
    left: tuple[str, ...]
    saved: str

    @property
    def reasons(self) -> list[str]:
        """The lines that say why the job ends."""
        return REASON.findall(self.output)


def main() -> int:
    """Run the cases; the status is 1 if one is not as expected."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.oracles.machine_faults", description=__doc__
    )
    parser.add_argument("--only", default="", help="cases whose name this regular expression is in")
    parser.add_argument("--show", action="store_true", help="the output of unexpected ones")
    options = parser.parse_args()
    chosen = [case for case in cases() if re.search(options.only, str(case))]
    counts = dict.fromkeys(("as_expected", "silent", "host_named", "hangs", "left_behind"), 0)
    worst = 0.0
    with forked_interpreter(ENVIRONMENT) as interpreter:
        for case in chosen:
            result = _run(case, interpreter)
            wrong = _unexpected(case, result)
            counts["as_expected"] += not wrong
            counts["silent"] += case.is_silent
            counts["host_named"] += case.is_silent and _names_host(result)
            counts["hangs"] += result.hung
            counts["left_behind"] += bool(result.left)
            worst = max(worst, result.seconds)
            print(
                f"{case}: {'; '.join(wrong) or 'as expected'}, {result.seconds:.1f} s", flush=True
            )
            if wrong and options.show:
                print(result.output, flush=True)
    print(json.dumps({"faults": len(chosen), **counts, "seconds_worst": round(worst, 1)}))
    return 0 if counts["as_expected"] == len(chosen) else 1


def _unexpected(case: Case, result: Result) -> list[str]:
    """The differences between a job's end and the expected end."""
    if result.hung:
        return ["it hung"]
    wrong = [f"left {process}" for process in result.left]
    if case.loses_machine:
        if case.is_silent:
            wrong += [] if len(result.reasons) == 1 else [f"{len(result.reasons)} reasons"]
            wrong += [] if _names_host(result) else ["no host"]
        saved = "" if case.phase == "start" else "model-2"
    else:
        wrong += [] if "rank 0 has trained" in result.output else ["the training failed"]
        saved = "model-8"
    return wrong + ([] if result.saved == saved else [f"the checkpoint {result.saved!r}"])


def _names_host(result: Result) -> bool:
    return any("on m2" in reason for reason in result.reasons)


def _run(case: Case, interpreter: list[str | Path]) -> Result:
    """Start the job of a case, cause the fault, and wait for the end."""
    with (
        tempfile.TemporaryDirectory() as folder,
        machines(case.machines, has_relays=True) as made,
    ):
        program = [*interpreter, Path(__file__).with_name("training.py"), case.phase]
        job = made.mpirun(case.ranks, program, env=ENVIRONMENT, folder=Path(folder))
        struck = Path(folder) / "struck"
        begun = time.monotonic()
        while job.is_running() and not struck.exists():
            if time.monotonic() > begun + START_SECONDS:
                raise TimeoutError(f"{case}: no fault in time. Got:\n{''.join(job.output())}")
            time.sleep(POLL_SECONDS)
        case.strike(made)
        begun = time.monotonic()
        limit = LIMIT_SECONDS if case.loses_machine else LOSS_SECONDS
        while job.is_running() and time.monotonic() < begun + limit:
            time.sleep(POLL_SECONDS)
        hung, seconds = job.is_running(), time.monotonic() - begun
        job.kill()
        if case.fault == "stopped":
            made.go_on(made.nodes[-1])
        left = () if hung else _left(made)
        return Result(hung, seconds, "".join(job.output()), left, _newest(Path(folder)))


def _left(made: Machines) -> tuple[str, ...]:
    """The processes that do not end by themselves."""
    begun = time.monotonic()
    while True:
        left = [f"{p.command} on {m.name}" for m in made.nodes for p in made.processes(m)]
        if not left or time.monotonic() > begun + LEAVING_SECONDS:
            return tuple(left)
        time.sleep(POLL_SECONDS)


def _newest(folder: Path) -> str:
    """The newest checkpoint, by the file that names it; empty if it is not whole."""
    state = folder / "checkpoints" / "checkpoint"
    if not state.exists():
        return ""
    named = re.search(r'^model_checkpoint_path: "(.*)"', state.read_text(), re.MULTILINE)
    name = Path(named[1]).name if named else ""
    is_whole = bool(name) and (state.with_name(f"{name}.index")).exists()
    return name if is_whole else ""


if __name__ == "__main__":
    sys.exit(main())
