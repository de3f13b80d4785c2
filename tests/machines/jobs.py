"""A job over machines, and its output by rank."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.machines.processes import below

__all__ = ["Ended", "Job"]

_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a job.

    Attributes:
        status: exit status of ``mpirun``.
        stdout: standard output, each line after the rank in brackets.
        stderr: standard error, likewise.
        seconds: time from the job's start.
    """

    status: int
    stdout: str
    stderr: str
    seconds: float

    def of_rank(self, rank: int) -> list[str]:
        """The lines that a rank printed."""
        return re.findall(rf"^\[{rank}\] (.*)$", self.stdout, re.MULTILINE)


class Job:
    """A running job.

    Args:
        command: the command that starts ``mpirun``.
        env: its environment.
        outputs: files for standard output and standard error; None to print them.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], outputs: tuple[Path, Path] | None
    ) -> None:
        self._started = time.monotonic()
        self._outputs = outputs
        # Files, not pipes: a rank that outlives its launcher would hold a pipe open.
        files = [os.open(path, os.O_WRONLY | os.O_CREAT, 0o600) for path in outputs or ()]
        out, errors = files or (None, None)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            env=env,
            start_new_session=True,
        )
        for file in files:
            os.close(file)

    def is_running(self) -> bool:
        """Whether ``mpirun`` has not ended."""
        return self._process.poll() is None

    def output(self) -> tuple[str, str]:
        """Standard output and standard error so far; empty if they are printed."""
        if self._outputs is None:
            return "", ""
        out, errors = self._outputs
        return out.read_text("utf-8", "replace"), errors.read_text("utf-8", "replace")

    def signal(self, number: signal.Signals) -> None:
        """Send ``mpirun`` a signal; the processes that lead to its namespaces do not forward it."""
        inside = below(self._process.pid)
        if inside:
            os.kill(inside[0], number)

    def wait(self, timeout_seconds: float) -> Ended:
        """The end of the job, which is killed after the time.

        Raises:
            TimeoutError: if the job does not end in time.
        """
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"the job ends within {timeout_seconds:g} s. Got no end, and this output:\n"
                + "\n".join(self.output())
            ) from None
        finally:
            self.kill()
        seconds = time.monotonic() - self._started
        return Ended(self._process.returncode, *self.output(), seconds)

    def end(self) -> None:
        """Kill all processes of the job that are below its first one."""
        while self.is_running():
            for pid in below(self._process.pid)[::-1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """Kill ``mpirun`` if it runs; its ranks end when they lose it."""
        while self.is_running():
            self.signal(signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
