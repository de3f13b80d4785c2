"""Tasks that run in a process of their own, or under one mpirun, and the lines that they print.

Lines may be kept in a file. Tasks whose lines are in the file do not run again, so a benchmark that
takes hours can run in portions.
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

from tensoropt.elastic.launcher import mpirun

__all__ = ["ROOT", "Done", "Line", "Task", "done", "kept_lines", "left_of"]

ROOT = Path(__file__).resolve().parent.parent.parent.parent
RANK_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """A few strategies of one model on one number of devices, for one process or one mpirun.

    Attributes:
        program: the module of this package that runs the task: "strategies", "pipelines" or
            "peaks".
        model: name of the model.
        world: "single-process" or "mpi".
        devices: number of devices.
        seed: seed of all draws.
        kinds: the kinds of the strategies; empty for any.
        numbers: the numbers of the strategies.
        lines: number of lines that are printed for each strategy.
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
        """The command that runs the task."""
        program = [sys.executable, "-m", f"tests.oracles.equality.{self.program}", self.model]
        program += [str(self.devices), str(self.seed), ",".join(self.kinds)]
        program += map(str, self.numbers)
        return [mpirun(), "-np", str(self.devices), *program] if self.world == "mpi" else program

    def has(self, line: Line) -> bool:
        """Whether a line belongs to one of the task's strategies."""
        mine = [self.program, self.model, self.world, self.devices, self.seed, list(self.kinds)]
        return line["task"] == mine and line["number"] in self.numbers


@dataclass(frozen=True, slots=True)
class Done:
    """The result of tasks.

    Attributes:
        lines: the printed lines.
        missing: number of lines that are missing.
        left: number of strategies that were not run for lack of time.
    """

    lines: tuple[Line, ...]
    missing: int
    left: int


def kept_lines(file: Path | None) -> list[Line]:
    """The lines that a file has from earlier runs."""
    if file is None or not file.exists():
        return []
    return [json.loads(text) for text in file.read_text().splitlines()]


def left_of(task: Task, lines: Sequence[Line]) -> tuple[Task, list[Line]]:
    """The part of a task that has no lines yet, and the lines of the other part."""
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
        tasks: all tasks, in order.
        jobs: number of tasks at a time.
        tell: called with each line.
        seconds: time after which no task begins and running tasks are stopped.
        keep: a file with the lines of earlier runs, to which this run appends its lines.
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
    """Run a task. If it fails, print its stderr."""
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
