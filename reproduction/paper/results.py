"""Computes the data of the figures in processes of their own, and keeps them."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.paper.tasks import Task
from tensoropt.arrays import Int64Array

__all__ = ["Result", "Store", "code_digest"]


ROOT = Path(__file__).resolve().parent.parent.parent
# The code that determines a frontier: models, descriptions, layouts, costs, the search.
_CODE = (
    "reproduction/paper/breakdown.py",
    "reproduction/paper/layers.py",
    "reproduction/paper/links.json",
    "reproduction/paper/memory_models.py",
    "reproduction/paper/models.py",
    "reproduction/paper/testbed.py",
    "reproduction/paper/worker.py",
    "examples/models",
    "tensoropt/graph",
    "tensoropt/tdl",
    "tensoropt/parallel",
    "tensoropt/cost",
    "tensoropt/problem",
    "tensoropt/search",
    "tensoropt/arrays.py",
)


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The frontier that a solver found for a task.

    Attributes:
        task: the model, the solver and the devices.
        memory_bytes, nanoseconds: int64[P], one element a point; memory ascends, time descends.
        computation_nanoseconds: int64[P], the part of the time that operators take.
        variables_nanoseconds, tensors_nanoseconds: int64[P], network time of parameters with their
            gradients, and of all other tensors.
        made_again: what reuse of tensors changes at the points numbered by "point", by pricing them
            with both copies of every tensor kept: "dropped_bytes" of a device, and "nanoseconds" of
            making dropped copies again.
        seconds, cpu_seconds: time of building the problem and searching it.
        exact: whether the frontier has all points.
        within: the proven gap, None if unknown.
        parameters_gb: size of the model's parameters in 2**30 bytes.
        operators, configurations: numbers of operators and configurations.
        device_memory_bytes: memory of one device without its reserve (the paper uses 14.5 of 16 GB,
            section 5.2).
    """

    task: Task
    memory_bytes: Int64Array
    nanoseconds: Int64Array
    computation_nanoseconds: Int64Array
    variables_nanoseconds: Int64Array
    tensors_nanoseconds: Int64Array
    made_again: Mapping[str, Sequence[int]] = field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    exact: bool = True
    within: float | None = 0.0
    parameters_gb: float = 0.0
    operators: int = 0
    configurations: int = 0
    device_memory_bytes: int = int(16 * 2**30 / 1.1)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Result:
        """A result from the JSON values of a worker."""
        task = Task(*(values[name] for name in Task.__slots__))
        own = {name: values[name] for name in cls.__slots__ if name != "task"}
        for name in own:
            if name == "memory_bytes" or name.endswith("nanoseconds"):
                own[name] = np.array(own[name], dtype=np.int64)
        return cls(task, **own)

    @property
    def network_nanoseconds(self) -> Int64Array:
        """int64[P], all time that is not computation."""
        return self.variables_nanoseconds + self.tensors_nanoseconds

    @property
    def exactness(self) -> str:
        """The proven gap in words."""
        if self.exact:
            return "exact"
        if self.within is None:
            return "not exact, by an unknown share"
        return f"within {100 * self.within:.2g} %"

    def fastest_within(self, memory_bytes: int) -> int | None:
        """The number of the fastest point within a memory limit; None if none fits."""
        fitting = int(np.searchsorted(self.memory_bytes, memory_bytes, side="right"))
        return fitting - 1 if fitting else None


def code_digest() -> str:
    """The digest of the source that determines a frontier; results of other code are computed
    again."""
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    for name in _CODE:
        path = ROOT / name
        if path.is_file():
            yield path
        else:
            yield from sorted(p for p in path.rglob("*") if p.suffix in (".py", ".json"))


class Store:
    """Results of tasks in a folder, one JSON file each.

    Args:
        folder: the folder, made if missing.
        digest: digest of the code; results of other code are computed again.
        limit_seconds: time limit of one task.
        begin_within: seconds from now after which no task begins.
    """

    def __init__(
        self, folder: Path, digest: str, limit_seconds: float, begin_within: float = math.inf
    ) -> None:
        self._folder = folder
        self._digest = digest
        self._limit_seconds = limit_seconds
        self._end = time.monotonic() + begin_within
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, task: Task, *, whatever_code: bool = False) -> Result | None:
        """The result of a task, None if this code (or, with ``whatever_code``, any code) has
        none."""
        path = self._path(task)
        if not path.exists():
            return None
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["digest"] != self._digest and not whatever_code:
            return None
        return Result.from_json(values)

    def links(self) -> frozenset[float]:
        """The factors of the links' bandwidth of which there are results."""
        texts = (path.read_text(encoding="utf-8") for path in self._folder.glob("*.json"))
        return frozenset(json.loads(text)["links"] for text in texts) - {1.0}

    def forget(self, tasks: Sequence[Task]) -> None:
        """Remove results of tasks."""
        for task in tasks:
            self._path(task).unlink(missing_ok=True)
            self._failed(task).unlink(missing_ok=True)

    def compute(self, tasks: Sequence[Task], jobs: int, batch: int = 1) -> dict[Task, str]:
        """Compute the missing results, several at a time.

        Tasks that failed before come last. They are left out if this code failed within the same
        time limit.

        Args:
            tasks: the tasks.
            jobs: processes at a time.
            batch: most tasks, of one model, for each process.

        Returns:
            For each failed task the reason.
        """
        known = {task: why for task in tasks if (why := self._fails(task)) is not None}
        missing = [task for task in tasks if task not in known and self.load(task) is None]
        missing.sort(key=lambda task: self._failed(task).exists())
        of_model: dict[str, list[Task]] = {}
        for task in missing:
            of_model.setdefault(task.model, []).append(task)
        batches = [
            some[first : first + batch]
            for some in of_model.values()
            for first in range(0, len(some), batch)
        ]
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            found = [each for some in pool.map(self._compute, batches) for each in some.items()]
        return known | {task: why for task, why in found if why}

    def failure(self, task: Task) -> str | None:
        """The reason why a task that began has no result; None if it has one or has not begun."""
        failed = self._failure(task)
        return None if failed is None else str(failed["why"])

    def _fails(self, task: Task) -> str | None:
        """The reason why this code cannot have a result of a task within the time limit; None if
        it may."""
        failed = self._failure(task)
        if failed is None or failed["digest"] != self._digest:
            return None
        return str(failed["why"]) if failed["limit_seconds"] >= self._limit_seconds else None

    def _failure(self, task: Task) -> dict[str, Any] | None:
        path = self._failed(task)
        if not path.exists():
            return None
        failed: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return failed

    def _path(self, task: Task) -> Path:
        return self._folder / f"{task.name}.json"

    def _failed(self, task: Task) -> Path:
        return self._folder / f"{task.name}.failure"

    def _compute(self, batch: Sequence[Task]) -> dict[Task, str]:
        """For each task of one model the reason why there is no result; an empty text if there
        is one."""
        if time.monotonic() > self._end:
            return dict.fromkeys(batch, "was not begun: time was up, and the next run goes on")
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            folder, limit = Path(name), self._limit_seconds * len(batch)
            command = [sys.executable, "-W", "ignore", "-m", "reproduction.paper.worker", name]
            try:
                done = subprocess.run(
                    [*command, *(json.dumps(task.to_json()) for task in batch)],
                    cwd=ROOT,
                    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"},
                    capture_output=True,
                    text=True,
                    timeout=limit,
                )
            except subprocess.TimeoutExpired:
                otherwise = f"took more than {limit:g} s"
            else:
                lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
                otherwise = lines[-1]
            return {task: self._kept(task, folder, otherwise) for task in batch}

    def _kept(self, task: Task, folder: Path, otherwise: str) -> str:
        """Keep the file that a worker wrote for a task; return the reason of a failure, or an
        empty text."""
        result, failed = folder / f"{task.name}.json", folder / f"{task.name}.failed"
        self._failed(task).unlink(missing_ok=True)
        why = ""
        if result.exists():
            values = {"digest": self._digest, **json.loads(result.read_text(encoding="utf-8"))}
            result.write_text(json.dumps(values), encoding="utf-8")
            result.replace(self._path(task))
        else:
            why = failed.read_text(encoding="utf-8") if failed.exists() else otherwise
            values = {"digest": self._digest, "limit_seconds": self._limit_seconds, "why": why}
            self._failed(task).write_text(json.dumps(values), encoding="utf-8")
        print(f"{task.name}: {why or 'computed'}", flush=True)
        return why
