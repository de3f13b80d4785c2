"""What is run in a process of its own, or under one mpirun, and the lines that it prints.

Lines may be kept in a file: what is there is not run again, so that a benchmark that takes hours
can be run in portions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.launcher import mpirun

__all__ = ["ROOT", "Done", "Line", "Task", "done", "kept_lines", "left_of"]

ROOT = Path(__file__).resolve().parent.parent.parent.parent
RANK_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """A few strategies of one model on one number of devices, for one process or one mpirun.

    Attributes:
        program: module of this package that runs it, "strategies" or "peaks".
        model: name of the model.
        world: "single-process" or "mpi".
        devices: how many.
        seed: of all draws.
        kinds: the kinds that strategies are to have; empty for any.
        numbers: of the strategies.
        lines: how many each of them prints.
    """

    program: str
    model: str
    world: str
    devices: int
    seed: int
    kinds: tuple[str, ...]
    numbers: tuple[int, ...]
    lines: int

    def command(self) -> list[str]:
        """What to start."""
        program = [sys.executable, "-m", f"tests.oracles.equality.{self.program}", self.model]
        program += [str(self.devices), str(self.seed), ",".join(self.kinds)]
        program += map(str, self.numbers)
        return [mpirun(), "-np", str(self.devices), *program] if self.world == "mpi" else program

    def has(self, line: Line) -> bool:
        """Whether a line is of one of these strategies."""
        mine = [self.program, self.model, self.world, self.devices, self.seed, list(self.kinds)]
        return line["task"] == mine and line["number"] in self.numbers


@dataclass(frozen=True, slots=True)
class Done:
    """What tasks came to.

    Attributes:
        lines: that they printed.
        missing: how many others they should have.
        left: how many strategies time was up for.
    """

    lines: tuple[Line, ...]
    missing: int
    left: int


def kept_lines(file: Path | None) -> list[Line]:
    """The lines of earlier runs."""
    if file is None or not file.exists():
        return []
    return [json.loads(text) for text in file.read_text().splitlines()]


def left_of(task: Task, lines: Sequence[Line]) -> tuple[Task, list[Line]]:
    """What of a task is not among the lines, and the lines of what is."""
    mine = [line for line in lines if task.has(line)]
    left, found = [], []
    for number in task.numbers:
        own = [line for line in mine if line["number"] == number]
        if len(own) < task.lines:
            left.append(number)
        else:
            found += own[-task.lines :]
    return replace(task, numbers=tuple(left)), found


def done(
    tasks: Sequence[Task],
    jobs: int,
    tell: Callable[[Line], None],
    seconds: float | None = None,
    keep: Path | None = None,
) -> Done:
    """Run tasks, several at a time.

    Args:
        tasks: all of them, in order.
        jobs: how many at a time.
        tell: called with each line.
        seconds: ends then, and leaves what is not done.
        keep: a file that has lines of earlier runs, and gets those of this one.
    """
    end = None if seconds is None else time.monotonic() + seconds
    before = kept_lines(keep)
    split = [left_of(task, before) for task in tasks]
    found = [line for _, lines in split for line in lines]
    lock = threading.Lock()

    def note(line: Line) -> None:
        with lock:
            tell(line)
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps(line) + "\n")

    with ThreadPoolExecutor(jobs) as pool:
        ran = list(pool.map(lambda task: _run(task, note, end), (task for task, _ in split)))
    found += [line for outcome in ran for line in outcome.lines]
    return Done(tuple(found), sum(each.missing for each in ran), sum(each.left for each in ran))


def _run(task: Task, note: Callable[[Line], None], end: float | None) -> Done:
    """Run a task, telling what it wrote on stderr if it failed."""
    if not task.numbers or (end is not None and time.monotonic() >= end):
        return Done((), 0, len(task.numbers))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    if task.world == "mpi":
        environment.update(RANK_THREADS)
    lines: list[Line] = []
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            task.command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
        )
        timer = threading.Timer(0 if end is None else end - time.monotonic(), process.terminate)
        if end is not None:
            timer.start()
        for line in _printed(process):
            asked = [task.program, task.model, task.world, task.devices, task.seed]
            lines.append({"task": [*asked, list(task.kinds)], **line})
            note(lines[-1])
        status = process.wait()
        timer.cancel()
        missing = len(task.numbers) * task.lines - len(lines)
        if (status or missing) and end is not None and time.monotonic() >= end:
            return Done(tuple(lines), 0, -(-missing // task.lines))
        if status or missing:
            errors.seek(0)
            command = " ".join(task.command())
            sys.stderr.write(f"{command} ended with status {status}:\n{errors.read()}\n")
    return Done(tuple(lines), missing, 0)


def _printed(process: subprocess.Popen[str]) -> Iterator[Line]:
    assert process.stdout is not None
    for text in process.stdout:
        if text.startswith("{"):
            yield json.loads(text)
