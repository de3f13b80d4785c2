"""Jobs of ranks that are watched and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tensoropt.elastic.launcher import mpirun

__all__ = ["Job", "say"]

_LONGEST_SECONDS = 300.0


def say(folder: Path, words: str) -> None:
    """Append a line to the job's messages in one write."""
    with (folder / "said").open("a") as file:
        file.write(words + "\n")


class Job:
    """Ranks that run a module of this package.

    Args:
        ranks: number of ranks.
        module: name of the module.
        folder: folder with the job's messages.
        arguments: further arguments of the module, after the folder.
    """

    def __init__(self, ranks: int, module: str, folder: Path, *arguments: str) -> None:
        self._folder = folder
        program = f"benchmarks.checkpoints.{module}"
        command = [mpirun(), "-np", str(ranks), sys.executable, "-m", program, str(folder)]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
        (folder / "said").unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def said(self, first: str) -> list[list[str]]:
        """The words of the messages that begin with ``first``, in order."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self._folder / "said").read_text().splitlines(keepends=True)
            return [line.split()[1:] for line in lines if line.split()[:1] == [first]]
        return []

    def wait_for(self, first: str, count: int = 1) -> None:
        """Wait until the job has written ``count`` messages that begin with ``first``.

        Raises:
            RuntimeError: if the job ends before, or does not write them in time.
        """
        until = time.monotonic() + _LONGEST_SECONDS
        while len(self.said(first)) < count:
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"a job says {first!r}. Got:\n{self._process.communicate()[1]}")
            time.sleep(0.01)

    def kill(self, ranks: int | None = None) -> None:
        """Kill the first ranks, or all ranks with their launcher, and wait for the end of the
        job."""
        running = self._process.poll() is None
        pids = [int(pid) for _, pid in sorted(self.said("rank"))]
        if ranks is None and running:
            pids.append(self._process.pid)
        for pid in pids[:ranks] if running else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.communicate(timeout=_LONGEST_SECONDS)

    def output(self) -> str:
        """The output of the job, after its successful end.

        Raises:
            RuntimeError: if the job failed.
        """
        out, error = self._process.communicate(timeout=_LONGEST_SECONDS)
        if self._process.returncode:
            raise RuntimeError(f"a job ends with status 0. Got:\n{out}{error}")
        return out
