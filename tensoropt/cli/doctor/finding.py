"""What the doctor finds, and the processes that it tries things in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["DoctorAnswer", "Finding", "Tried", "try_in_process"]

_LAST_LINES = 3  # of a failed process's errors that a finding repeats

State = Literal["works", "fails", "absent"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether one thing works here.

    Attributes:
        what: the thing, such as "TensorFlow".
        state: "works", "fails", or "absent" for a thing that a job can do without.
        found: the version, number or size that was found, or the error.
        remedy: what to do about it; empty if it works.
    """

    what: str
    state: State
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class DoctorAnswer:
    """The findings of the doctor.

    Attributes:
        works: whether jobs on several ranks can run here: nothing fails.
        findings: one for each thing.
    """

    works: bool
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a process.

    Attributes:
        values: the JSON objects that it has printed, each on a line.
        error: the last lines of its errors; empty if it ended well.
    """

    values: tuple[dict[str, Any], ...]
    error: str


def try_in_process(command: Sequence[str], seconds: float) -> Tried:
    """Run a process, so that its crash or endless wait is a finding."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=environment,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as late:
        return Tried(_values(late.stdout or b""), f"no end after {seconds:.0f} s")
    except OSError as error:
        return Tried((), str(error))
    said = ""
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = " ".join(lines[-_LAST_LINES:]) or f"exit status {done.returncode}"
    return Tried(_values(done.stdout), said)


def _values(output: str | bytes) -> tuple[dict[str, Any], ...]:
    text = output.decode(errors="replace") if isinstance(output, bytes) else output
    return tuple(json.loads(line) for line in text.splitlines() if line.startswith("{"))
