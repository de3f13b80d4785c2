"""``python -m tests.oracles.equality``: four models under random strategies, in one process and
under mpirun.

Losses and variables after five steps are compared with plain TensorFlow's on one device. The error
of a tensor is max |a-b| over max |b|. Other options compare something else:

- ``--peaks``: by how much the peak memory of random strategies falls if variables are stored in
  pieces, fewer copies are kept, or operators are computed again; predicted and measured, under
  mpirun;
- ``--pipelines``: random pipelines of stages;
- ``--keras``: steps of eager TensorFlow, of models of ``keras.applications`` and of tutorials.

The last line is one JSON object. The exit status says whether all results lie within the bars.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.oracles.equality.kinds import KEPT_KINDS, KINDS
from tests.oracles.equality.tasks import ROOT, Done, Line, Task, done
from tests.oracles.equality.variants import (
    KINDS_OF_PEAKS,
    LOSS_BAR,
    SAVING_BAR,
    peak_failures,
    peak_report,
    savings,
)

__all__ = ["BARS", "main"]

APPLICATIONS = ("ResNet50", "EfficientNetB0", "MobileNetV3Small", "ConvNeXtTiny", "DenseNet121")
TUTORIALS = ("quickstart", "gan", "static", "ragged", "sparse", "epoch")
COMPILED = (
    *("nadam", "adafactor", "ftrl", "lamb", "averaged", "accumulated"),
    *("texts", "preprocessing", "loaded", "late"),
)
"""Small models that are compiled, see `tests.oracles.eager.compiled_models`."""
MODELS = ("vgg16", "wide_resnet", "lstm", "transformer")
OTHERS = ("mlp", "mlp_dropout", "transformer_dropout")
BARS = {"float32": 1e-4, "float64": 1e-10}
MPI_RANKS = 4
STRATEGIES_PER_PROCESS = 5
PEAK_RANKS = (2, 4)
PIPELINE_BARS = {"float32": 1e-5, "float64": 1e-10}
PIPELINE_DEVICES = (2, 4, 6, 8)
PIPELINE_MODELS = ("mlp_dropout", "lstm", "transformer", "skips", "tied")


def equality_tasks(options: argparse.Namespace) -> list[Task]:
    """The strategies that are asked for, in tasks of a few. The first tasks have a few strategies
    of each model, number of devices and world."""
    kinds = tuple(options.kinds or ())

    def task(model: str, world: str, devices: int, numbers: Sequence[int]) -> Task:
        return Task(
            "strategies", model, world, devices, options.seed, kinds, tuple(numbers), len(BARS)
        )

    size, found = STRATEGIES_PER_PROCESS, []
    for start in range(0, max(options.strategies, options.mpi_strategies), size):
        for place, devices in enumerate(options.devices):
            numbers = range(place, options.strategies, len(options.devices))[start : start + size]
            found += [task(model, "single-process", devices, numbers) for model in options.models]
        ranks = range(options.mpi_strategies)[start : start + size]
        found += [task(model, "mpi", MPI_RANKS, ranks) for model in options.models]
    return [task for task in found if task.numbers]


def report(models: list[str], lines: list[Line]) -> dict[str, Any]:
    """The content of the last line: for each model the worst errors and how often each kind
    occurred."""
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
        entry["mpi_kinds"] = {
            kind: sum(kind in line["kinds"] for line in mine if line["world"] == "mpi")
            for kind in KEPT_KINDS
        }
        found[model] = entry
    return {"models": found, "bars": BARS, "failures": sum(map(_fails, lines))}


def main() -> int:
    """Run the benchmark; returns the exit status."""
    options = _arguments()
    start = time.monotonic()
    run = _pipelines if options.pipelines or options.mpi_pipelines else _equality
    run = _keras if options.keras else run
    result = (_peaks if options.peaks else run)(options)
    result["seconds"] = round(time.monotonic() - start)
    print(json.dumps(result))
    return 1 if result["failures"] else 0


def _equality(options: argparse.Namespace) -> dict[str, Any]:
    found = done(equality_tasks(options), options.jobs, _tell, options.seconds, options.keep)
    for line in filter(_fails, found.lines):
        sys.stderr.write("not equal: ")
        _tell(line)
    return _with_missing(report(options.models, list(found.lines)), found)


def _peaks(options: argparse.Namespace) -> dict[str, Any]:
    tasks = [
        Task("peaks", model, "mpi", ranks, options.seed, (), (number,), 1)
        for number in range(options.peaks)
        for ranks in options.peak_ranks
        for model in options.models
    ]
    found = done(tasks, 1, _tell_peaks, options.seconds, options.keep)
    failures = peak_failures(found.lines)
    sys.stderr.writelines(f"not as predicted: {failure}\n" for failure in failures)
    models = {}
    for model in options.models:
        mine = [line for line in found.lines if line["model"] == model]
        if mine:
            models[model] = peak_report(mine)
    bars = {"saving": SAVING_BAR, "loss": LOSS_BAR}
    result = {"peaks": models, "bars": bars, "failures": len(failures)}
    return _with_missing(result, found)


def _pipelines(options: argparse.Namespace) -> dict[str, Any]:
    """Train random pipelines, spread over models and numbers of devices, in one process and under
    mpirun."""
    pairs = list(itertools.product(PIPELINE_DEVICES, PIPELINE_MODELS))
    tasks = []
    for place, (devices, model) in enumerate(pairs):
        numbers = tuple(range(place, options.pipelines, len(pairs)))
        tasks.append(
            Task("pipelines", model, "single-process", devices, options.seed, (), numbers, 2)
        )
    for place, model in enumerate(PIPELINE_MODELS):
        numbers = tuple(range(place, options.mpi_pipelines, len(PIPELINE_MODELS)))
        tasks.append(Task("pipelines", model, "mpi", MPI_RANKS, options.seed, (), numbers, 2))
    found = done(
        [t for t in tasks if t.numbers], options.jobs, _tell, options.seconds, options.keep
    )
    worst = {
        f"{world} {dtype}": max((line["error"] or 0.0 for line in mine), default=None)
        for world in ("single-process", "mpi")
        for dtype in PIPELINE_BARS
        if (mine := [x for x in found.lines if (x["world"], x["type"]) == (world, dtype)])
    }
    failures = [
        line
        for line in found.lines
        if line["error"] is None or not line["error"] <= PIPELINE_BARS[line["type"]]
    ]
    for line in failures:
        sys.stderr.write("not equal: ")
        _tell(line)
    result = {
        "pipelines": len(found.lines) // len(PIPELINE_BARS),
        "worst": worst,
        "bars": PIPELINE_BARS,
        "failures": len(failures),
    }
    return _with_missing(result, found)


def _keras(options: argparse.Namespace) -> dict[str, Any]:
    """Train steps of eager TensorFlow, spread over models and numbers of devices, each in its own
    process.

    An application takes five times as long as another model, so the other models have three times
    as many runs.
    """
    names = options.keras_models
    turns = [name for name in names for _ in range(1 if name in APPLICATIONS else 3)]
    runs: dict[str, list[str]] = {name: [] for name in names}
    for number in range(options.keras):
        mine = runs[turns[number % len(turns)]]
        mine.append(f"{options.devices[len(mine) % len(options.devices)]}:{number}")
    program = [sys.executable, "-m", "tests.oracles.eager.keras_steps"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    lines: list[Line] = []
    for name in [name for name in names if runs[name]]:
        task = [*program, name, str(options.seed), *runs[name]]
        made = subprocess.run(task, stdout=subprocess.PIPE, env=environment, text=True)
        found = [json.loads(line) for line in made.stdout.splitlines() if line[:1] == "{"]
        lines += found
        sys.stderr.writelines(json.dumps(line) + "\n" for line in found)
    models = {}
    for name in names:
        made_of = [line for line in lines if line["model"] == name]
        differ = [line["differences"] for line in made_of if line["differences"]]
        models[name] = {
            "runs": len(made_of),
            "type": made_of[0]["type"] if made_of else None,
            "losses": max((max(each[:-2]) for each in differ), default=None),
            "variables": max((max(each[-2:]) for each in differ), default=None),
            "of_bar": max((line["of_bar"] or 0.0 for line in made_of), default=None),
        }
    passed = [line for line in lines if line["of_bar"] is not None and line["of_bar"] <= 1]
    return {"keras": models, "failures": options.keras - len(passed)}


def _with_missing(result: dict[str, Any], found: Done) -> dict[str, Any]:
    result["failures"] += found.missing
    if found.left:
        result["left"] = found.left
    return result


def _tell_peaks(line: Line) -> None:
    found = []
    for kind in KINDS_OF_PEAKS:
        predicted, measured = savings(line, kind)
        found.append(f"{kind} {measured:+.1%} (predicted {predicted:+.1%})")
    sys.stderr.write(
        f"{line['model']} N={line['devices']} strategy {line['number']}, of the peak saved: "
        f"{', '.join(found)}\n"
    )
    sys.stderr.flush()


def _fails(line: Line) -> bool:
    return line["error"] is None or not line["error"] <= BARS[line["type"]]


def _tell(line: Line) -> None:
    said = line["reason"] if line["error"] is None else f"{line['error']:.2e}"
    sys.stderr.write(
        f"{line['model']} {line['world']} N={line['devices']} strategy {line['number']} "
        f"{line['type']}: {said} ({', '.join(line['kinds'])})\n"
    )
    sys.stderr.flush()


def _arguments() -> argparse.Namespace:
    described = (__doc__ or "").partition("\n\n")[2]
    parser = argparse.ArgumentParser(prog="python -m tests.oracles.equality", description=described)
    add = parser.add_argument
    add("--models", nargs="+", default=list(MODELS), choices=(*MODELS, *OTHERS))
    each = "for each model, in one process, over all --devices"
    add("--strategies", type=int, default=100, help=each)
    add("--devices", type=int, nargs="+", default=[2, 4, 8])
    under = f"under mpirun -np {MPI_RANKS}"
    add("--mpi-strategies", type=int, default=8, help=f"for each model, {under}")
    only = "kinds of the strategies, each alone in turn, then all together: variables in pieces, "
    only += "copies kept before or after resharding, operators computed again"
    add("--kinds", nargs="+", choices=KEPT_KINDS, help=only)
    peaks = "measure peak memory instead, for this number of strategies, models and ranks"
    add("--peaks", type=int, default=0, metavar="STRATEGIES", help=peaks)
    pipelines = "random pipelines instead, in one process, over five models and 2 to 8 devices"
    add("--pipelines", type=int, default=0, help=pipelines)
    add("--mpi-pipelines", type=int, default=0, help=f"random pipelines {under}")
    keras = "steps of eager TensorFlow instead, over models of keras.applications, steps of "
    keras += "tutorials, small compiled models, and all --devices"
    add("--keras", type=int, default=0, metavar="RUNS", help=keras)
    eager = [*APPLICATIONS, *TUTORIALS, *COMPILED]
    add("--keras-models", nargs="+", choices=eager, default=eager)
    add("--peak-ranks", type=int, nargs="+", default=list(PEAK_RANKS))
    add("--seed", type=int, default=0)
    add("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="processes at a time")
    add("--seconds", type=float, help="end after this time, with the results so far")
    keep = "file for the results; results in it are not computed again"
    add("--keep", type=Path, help=keep)
    options = parser.parse_args()
    if options.peaks and not set(options.models) <= set(MODELS):
        parser.error(f"--peaks measures {', '.join(MODELS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
