"""A job of several ranks with a fault, and the processes and memory that it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensoropt.elastic.launcher import mpirun

__all__ = ["Ended", "run_job"]

ROOT = Path(__file__).resolve().parent.parent.parent.parent
SHARED_MEMORY = Path("/dev/shm")
_MARK = "FAULTS_JOB"
_LEAVING_SECONDS = 5.0  # seconds for the processes of a job whose launcher has ended
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a job.

    Attributes:
        status: exit status of the launcher; None if the job exceeded its limit and was killed.
        output: standard output and standard error of all ranks.
        is_struck: whether the fault was noted.
        seconds: time to the launcher's end, from the fault or, if no fault was noted, from the
            start.
        processes: command lines of processes that were still running some seconds later.
        shared_memory: names of new files in ``/dev/shm`` that no process maps.
    """

    status: int | None
    output: str
    is_struck: bool
    seconds: float
    processes: tuple[str, ...]
    shared_memory: tuple[str, ...]


def run_job(
    ranks: int,
    program: Sequence[str | Path],
    folder: Path,
    limit_seconds: float,
    env: Mapping[str, str],
    strike: Callable[[int], None] | None = None,
) -> Ended:
    """Run ``mpirun -np ranks python *program`` until it ends or exceeds its limit.

    The job makes the file ``struck`` in the folder when its fault happens; then ``strike`` is
    called with the launcher's process group. Files that the job leaves in ``/dev/shm`` are removed.
    """
    mark = uuid.uuid4().hex
    whole_env = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **env}
    whole_env[_MARK] = mark
    # A kept plan would skip the search in which some jobs are stopped.
    whole_env["TENSOROPT_PLANS"] = "none"
    before = _shared_memory()
    command = [mpirun(), "-np", str(ranks), sys.executable, *map(str, program)]
    with tempfile.TemporaryFile() as output:
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=whole_env,
            cwd=folder,
            start_new_session=True,
            # A shell's background jobs ignore Ctrl-C, and so would their processes.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        struck: float | None = None
        while process.poll() is None and time.monotonic() - started < limit_seconds:
            if struck is None and (folder / "struck").exists():
                struck = time.monotonic()
                if strike is not None:
                    strike(process.pid)
            time.sleep(_POLL_SECONDS)
        status = process.poll()
        ended = time.monotonic()
        processes = _still_there(mark) if status is not None else ()
        for number in _marked(mark):
            os.kill(number, signal.SIGKILL)
        if status is None:
            process.kill()
            process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    left = _left(before)
    for name in left:
        (SHARED_MEMORY / name).unlink(missing_ok=True)
    seconds = ended - (struck or started)
    return Ended(status, text, struck is not None, seconds, processes, left)


def _shared_memory() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def _left(before: set[str]) -> tuple[str, ...]:
    """New files in shared memory that no process maps; other jobs may run meanwhile."""
    numbers = [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]
    mapped = "\n".join(_read(number, "maps") for number in numbers)
    return tuple(name for name in sorted(_shared_memory() - before) if name not in mapped)


def _still_there(mark: str) -> tuple[str, ...]:
    """The command lines of a job's processes that do not end by themselves."""
    begun = time.monotonic()
    while _marked(mark) and time.monotonic() - begun < _LEAVING_SECONDS:
        time.sleep(_POLL_SECONDS)
    return tuple(_read(number, "cmdline").replace("\0", " ") for number in _marked(mark))


def _marked(mark: str) -> list[int]:
    wanted = f"{_MARK}={mark}"
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [n for n in numbers if wanted in _read(n, "environ").split("\0")]


def _read(process: int | str, name: str) -> str:
    """A file of a process; empty if the process has ended or belongs to another user."""
    try:
        return Path(f"/proc/{process}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""
