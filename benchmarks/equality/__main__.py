"""``python -m benchmarks.equality``: four models, random strategies, both worlds.

Losses and variables after five steps against plain TensorFlow on one device, as max |a-b| over
max |b| of each tensor. The last line is one JSON object; the exit status says whether every
difference lies within the bars.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.equality.kinds import KINDS

__all__ = ["BARS", "main"]

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = ("vgg16", "wide_resnet", "lstm", "transformer")
BARS = {"float32": 1e-4, "float64": 1e-10}
MPI_RANKS = 4
STRATEGIES_PER_PROCESS = 17
RANK_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """A few strategies of one model on one number of devices, for one process or one mpirun."""

    model: str
    world: str
    devices: int
    seed: int
    numbers: tuple[int, ...]

    def command(self) -> list[str]:
        """What to start."""
        program = [sys.executable, "-m", "benchmarks.equality.strategies", self.model]
        program += [str(self.devices), str(self.seed), *map(str, self.numbers)]
        return [_mpirun(), "-np", str(self.devices), *program] if self.world == "mpi" else program


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    """All strategies asked for, in tasks of a few; those under mpirun last."""
    for model in options.models:
        for place, devices in enumerate(options.devices):
            numbers = range(place, options.strategies, len(options.devices))
            for start in range(0, len(numbers), STRATEGIES_PER_PROCESS):
                some = tuple(numbers[start : start + STRATEGIES_PER_PROCESS])
                yield Task(model, "single-process", devices, options.seed, some)
    for model in options.models:
        if options.mpi_strategies:
            some = tuple(range(options.mpi_strategies))
            yield Task(model, "mpi", MPI_RANKS, options.seed, some)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The lines that a task printed, and how many it did not come to."""

    lines: tuple[Line, ...]
    missing: int


def run(task: Task) -> Outcome:
    """Run a task, telling its results on stderr, and what it wrote there itself if it failed."""
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
        assert process.stdout is not None
        for text in process.stdout:
            if text.startswith("{"):
                lines.append(json.loads(text))
                _tell(lines[-1])
        status = process.wait()
        missing = len(task.numbers) * len(BARS) - len(lines)
        if status or missing:
            errors.seek(0)
            command = " ".join(task.command())
            sys.stderr.write(f"{command} ended with status {status}:\n{errors.read()}\n")
    return Outcome(tuple(lines), missing)


def report(models: list[str], lines: list[Line]) -> dict[str, Any]:
    """What the last line says: per model the worst differences and how often a kind occurred."""
    found: dict[str, Any] = {}
    for model in models:
        mine = [line for line in lines if line["model"] == model]
        counts = {
            world: len(
                {(line["devices"], line["number"]) for line in mine if line["world"] == world}
            )
            for world in ("single-process", "mpi")
        }
        entry: dict[str, Any] = {
            "strategies": counts["single-process"],
            "mpi_strategies": counts["mpi"],
        }
        for dtype in BARS:
            entry[f"worst_{dtype}"] = max(
                (
                    line["error"]
                    for line in mine
                    if line["type"] == dtype and line["error"] is not None
                ),
                default=None,
            )
        entry["drawn"] = len(mine)
        entry["kinds"] = {kind: sum(kind in line["kinds"] for line in mine) for kind in KINDS}
        found[model] = entry
    return {"models": found, "bars": BARS, "failures": sum(map(_fails, lines))}


def main() -> int:
    """Run the benchmark; returns the exit status."""
    options = _arguments()
    start = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(run, list(tasks(options))))
    lines = [line for outcome in outcomes for line in outcome.lines]
    for line in filter(_fails, lines):
        sys.stderr.write("not equal: ")
        _tell(line)
    result = report(options.models, lines)
    result["failures"] += sum(outcome.missing for outcome in outcomes)
    result["seconds"] = round(time.monotonic() - start)
    print(json.dumps(result))
    return 1 if result["failures"] else 0


def _fails(line: Line) -> bool:
    return line["error"] is None or not line["error"] <= BARS[line["type"]]


def _tell(line: Line) -> None:
    said = line["reason"] if line["error"] is None else f"{line['error']:.2e}"
    sys.stderr.write(
        f"{line['model']} {line['world']} N={line['devices']} strategy {line['number']} "
        f"{line['type']}: {said} ({', '.join(line['kinds'])})\n"
    )
    sys.stderr.flush()


def _mpirun() -> str:
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise RuntimeError(
            "strategies on ranks need mpirun. Got none beside the interpreter and none on PATH. "
            "Install it with: pip install 'tensoropt[mpi]', or pass --mpi-strategies 0."
        )
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.equality")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument(
        "--strategies", type=int, default=100, help="per model, in one process, over all --devices"
    )
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument(
        "--mpi-strategies", type=int, default=8, help=f"per model, under mpirun -np {MPI_RANKS}"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--jobs", type=int, default=min(4, os.cpu_count() or 1), help="processes at a time"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
