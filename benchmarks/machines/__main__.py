"""``python -m benchmarks.machines``: milliseconds of a training step on several machines.

Simulated machines (`tests.machines`) of one core or two ranks each are joined by links of several
rates and delays. In turns: no communication, Horovod if it can be imported, and ours by data
parallelism and by ``mini_time``. The last line is one JSON object: for each cell, named by model,
shape and link ("mlp/2x1/1gbit-1ms"), the milliseconds of each way, and the predicted milliseconds
of ``mini_time`` and of data parallelism. With --measure-profile, ``tensoropt profile`` measures
each cell first, and predictions are those with its profile. One core copies some 5 Gbit/s, so the
fastest link is as fast as it goes. Takes one to five minutes a cell, and a profile four more; with
--results, a later run goes on where this one stopped.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from pathlib import Path

from benchmarks.machines.jobs import LINKS, SHAPES, jobs_on
from benchmarks.speed.models import BATCHES
from tensoropt.report.text_table import table

__all__ = ["main"]

MODELS = ("mlp", "vgg16_dense", "lstm", "transformer")
WAYS = ("none", "horovod", "data_parallel", "predicted_data_parallel", "mini_time", "predicted")
PROFILED = Path(__file__).with_name("planned.py")
Cells = dict[str, dict[str, float]]


def main() -> None:
    """Run, print the times, and end with the JSON line."""
    options = _arguments()
    cells: Cells = {}
    if options.results and options.results.exists():
        cells = json.loads(options.results.read_text())["cells"]
    for link in options.links:
        for shape in options.shapes:
            for model in options.models:
                name = f"{model}/{shape}/{link}"
                if name in cells or not re.search(options.only, name):
                    continue
                profile = None if options.measure_profile else options.profile
                cells[name] = _measured(model, shape, link, profile)
                print(name, *(f"{way} {ms:.0f}" for way, ms in cells[name].items()), flush=True)
                if options.results:
                    options.results.write_text(json.dumps({"cells": cells}) + "\n")
    rows = [
        [name, *(f"{of[way]:.0f}" if way in of else "" for way in WAYS)]
        for name, of in cells.items()
    ]
    print("ms per step")
    print(table(["cell", *WAYS], rows, [False] + [True] * len(WAYS)))
    print(json.dumps({"cells": cells}))


def _measured(model: str, shape: str, link: str, profile: str | None) -> dict[str, float]:
    """Milliseconds of each way on new machines, whose profile is measured if it is None."""
    env = {"TENSOROPT_PLANS": "none"}
    with tempfile.TemporaryDirectory() as folder, jobs_on(shape, link) as run:
        result, own_profile = Path(folder) / "times.json", str(Path(folder) / "profile.json")
        if profile is None:
            measuring = ["-m", "tensoropt", "profile", PROFILED, "--batch-size", BATCHES[model]]
            run([*measuring, "--output", own_profile, "--", model], env)
            profile = own_profile
        env |= {"TENSOROPT_PROFILE": profile} if profile else {}
        run(["-m", "benchmarks.machines.measure", model, result], env)
        times: dict[str, float] = json.loads(result.read_text())
        return times


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines", description=__doc__)
    add = parser.add_argument
    add("--models", nargs="+", choices=MODELS, default=list(MODELS))
    add("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="machines x ranks")
    add("--links", nargs="+", choices=LINKS, default=list(LINKS))
    add("--only", default="", help="cells whose name this regular expression is in")
    add("--profile", default="", help="TENSOROPT_PROFILE of the ranks; by default the caller's")
    add("--measure-profile", action="store_true", help="measure a profile of each cell first")
    results = "file for the results; cells that are in it are not measured again"
    add("--results", type=Path, help=results)
    return parser.parse_args()


if __name__ == "__main__":
    main()
