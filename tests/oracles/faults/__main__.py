"""``python -m tests.oracles.faults``: faults on purpose, and the ends of their jobs.

A case is a fault (an error, an exit, a kill, a stopped rank, Ctrl-C, SIGTERM) in a phase of a
training script (before the plan, in the search, in the first step, later, in a save, at the end),
on 2 or 4 ranks, or a fault that users met. A case is as expected if the job ends within its limit
with the expected status and words, and leaves no process and no shared memory. The program prints a
line for each case. The last line is one JSON object: the numbers of cases, of cases as expected, of
jobs that hung, and of jobs that left something, and the seconds of the slowest case from its fault
to its end.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from tests.oracles.faults.cases import Case, cases
from tests.oracles.faults.jobs import Ended, run_job

__all__ = ["main", "unexpected"]

START_SECONDS = 120.0  # seconds until the fault: imports on a loaded machine


def unexpected(case: Case, ended: Ended) -> list[str]:
    """The differences between a job's end and the expected end."""
    if ended.status is None:
        return ["it hung"]
    found = []
    if case.is_noted and not ended.is_struck:
        found.append("the fault did not happen")
    if (ended.status == 0 and case.status != 0) or case.status not in (None, ended.status):
        wanted = "not 0" if case.status is None else case.status
        found.append(f"status {ended.status}, where {wanted} is right")
    found += [f"no {word!r}" for word in (*case.words, *case.once) if word not in ended.output]
    found += [f"more than one {word!r}" for word in case.once if ended.output.count(word) > 1]
    found += [f"{word!r}" for word in case.never if word in ended.output]
    if ended.seconds > case.limit_seconds:
        found.append(f"{ended.seconds:.1f} s, where {case.limit_seconds:.0f} are right")
    found += [f"left the process {process}" for process in ended.processes]
    found += [f"left {name} in shared memory" for name in ended.shared_memory]
    return found


def main() -> int:
    """Run the cases; the status is 1 if one is not as expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracles.faults", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name this regular expression is in")
    parser.add_argument("--show", action="store_true", help="the output of unexpected ones")
    arguments = parser.parse_args()
    chosen = [case for case in cases() if re.search(arguments.only, case.name)]
    right = hangs = left_behind = 0
    worst = 0.0
    for case in chosen:
        with tempfile.TemporaryDirectory() as folder:
            limit = START_SECONDS + case.limit_seconds
            ended = run_job(case.ranks, case.program, Path(folder), limit, case.env, case.strike)
        wrong = unexpected(case, ended)
        right += not wrong
        hangs += ended.status is None
        left_behind += bool(ended.processes or ended.shared_memory)
        worst = max(worst, ended.seconds)
        sys.stdout.write(
            f"{case.name}: {'; '.join(wrong) or 'as expected'}, {ended.seconds:.1f} s\n"
        )
        if wrong and arguments.show:
            sys.stdout.write(f"{ended.output}\n")
        sys.stdout.flush()
    counts = {
        "cases": len(chosen),
        "as_expected": right,
        "hangs": hangs,
        "left_behind": left_behind,
    }
    print(json.dumps({**counts, "seconds_worst": round(worst, 1)}))
    return 0 if right == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
