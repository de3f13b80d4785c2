"""``python -m benchmarks.measured_frontier``: a predicted frontier, executed and measured.

Each model's machine profile is measured first. Then points at even distances along its frontier run
in turns with data parallelism and the strategies of OptCNN, Tofu and Mesh-TensorFlow. The slowest
rank determines the time of a step, and the rank with the highest peak its memory; medians count.
The ranks share this machine, or, with ``--machines``, simulated ones (`tests.machines`) that links
join. Each strategy has its predicted and its measured costs. The last line is one JSON object; with
``--picture``, there is a picture, too. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.launcher import run_job
from benchmarks.machines.jobs import LINKS, SHAPES, RunJob, jobs_on
from benchmarks.measured_frontier.drawing import draw
from benchmarks.measured_frontier.figures import figures
from benchmarks.measured_frontier.strategies import MODELS, Measured
from tensoropt.report.text_table import table

__all__ = ["main"]

_TRIALS = Path(__file__).with_name("trials.py")
_FULL = ("--largest", 32 * 2**20)
_SMALL = ("--seconds", 5, "--network-seconds", 5, "--largest", 2**20)
"""Limits of the profile."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, and end with the JSON line."""
    options = _options(arguments)
    found: dict[str, list[Measured]] = {}
    for model in options.models:
        found[model] = _run(model, options)
        print(f"{model}, {_where(options)}\n{_table(found[model])}", flush=True)
    if options.picture is not None:
        draw(found, _where(options), options.picture)
    models = {model: figures(rows) for model, rows in found.items()}
    link = None if options.machines is None else options.link
    place = {"ranks": options.ranks, "machines": options.machines, "link": link}
    print(json.dumps({**place, "load": os.getloadavg()[0], "models": models}))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.measured_frontier", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ranks", type=int, default=2, help="on this machine")
    simulated = "simulated machines x ranks on each, in place of this machine"
    parser.add_argument("--machines", choices=SHAPES, help=simulated)
    parser.add_argument("--link", choices=LINKS, default="1gbit-0.1ms", help="between machines")
    parser.add_argument("--points", type=int, help="of each frontier; 12, and 3 with --small")
    parser.add_argument("--turns", type=int, help="of each strategy; 5, and 1 with --small")
    parser.add_argument("--small", action="store_true", help="a short profile, a quarter batch")
    parser.add_argument("--picture", type=Path, help="a .png, .svg or .pdf file")
    parser.add_argument("--keep", type=Path, help="a folder: its models are not measured again")
    options = parser.parse_args(arguments)
    options.points = options.points or (3 if options.small else 12)
    options.turns = options.turns or (1 if options.small else 5)
    if options.machines is not None:
        options.ranks = math.prod(SHAPES[options.machines])
    return options


def _where(options: argparse.Namespace) -> str:
    """Return where the steps run, in words."""
    if options.machines is None:
        return f"{options.ranks} ranks"
    count, ranks = SHAPES[options.machines]
    rate, delay = options.link.split("-")
    each = "one rank" if ranks == 1 else f"{ranks} ranks"
    return f"{count} machines of {each}, {rate}, {delay}"


def _run(model: str, options: argparse.Namespace) -> list[Measured]:
    """Return the measured strategies of a model, from the folder of `--keep` if they are there."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if options.keep is None else options.keep
        folder.mkdir(parents=True, exist_ok=True)
        place = options.ranks if options.machines is None else f"{options.machines}-{options.link}"
        result = folder / f"{model}-{place}.json"
        if not result.exists():
            _measure(model, options, Path(temporary), result)
        return [Measured.from_json(values) for values in json.loads(result.read_text())]


def _measure(model: str, options: argparse.Namespace, folder: Path, result: Path) -> None:
    """Measure the machine's profile, then the strategies."""
    batch = MODELS[model][1] // (4 if options.small else 1)
    given = [model, batch, options.points, options.turns, result]
    limits = _SMALL if options.small else _FULL
    profile = folder / "profile.json"
    ours = ["-m", "tensoropt", "profile", _TRIALS, "--batch-size", batch, "--output", profile]
    environment = {
        "TENSOROPT_PLANS": str(folder),
        "TENSOROPT_PROFILE": str(profile),
        "TENSOROPT_RANK_SPEEDS": "equal",
        "TF_CPU_ALLOCATOR_USE_BFC": "true",  # records allocations, in the profile's steps likewise
    }
    with _jobs(options) as run:
        for program in ([*ours, *limits, "--", *given], [_TRIALS, *given]):
            run(program, environment)


@contextmanager
def _jobs(options: argparse.Namespace) -> Iterator[RunJob]:
    """Yield the function that runs a job where the options say."""
    if options.machines is not None:
        with jobs_on(options.machines, options.link) as run:
            yield run
        return
    paths = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))

    def run_here(program: Sequence[object], environment: Mapping[str, str]) -> None:
        run_job(program, options.ranks, {"PYTHONPATH": paths, **environment})

    yield run_here


def _table(rows: Sequence[Measured]) -> str:
    header = ["strategy", "way", "ms predicted", "network", "measured", "spread"]
    header += ["MiB predicted", "measured"]
    cells = [
        [
            row.name,
            row.way,
            f"{row.predicted_ms:.1f}",
            f"{row.predicted_network_ms:.1f}",
            f"{row.measured_ms:.1f}",
            f"{row.spread_ms:.1f}",
            f"{row.predicted_bytes / 2**20:.1f}",
            f"{row.measured_bytes / 2**20:.1f}",
        ]
        for row in rows
    ]
    return str(table(header, cells, [False, False, *[True] * 6]))


if __name__ == "__main__":
    main()
