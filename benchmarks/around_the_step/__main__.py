"""``python -m benchmarks.around_the_step``: seconds of an epoch of ``fit``, and of its parts.

``fit`` has validation data, ModelCheckpoint and TensorBoard; its input is a map of ``tf.data`` that
takes some milliseconds an example. The ways are plain Keras in one process with as many threads as
there are ranks, Horovod if it can be imported, and ours by `tensoropt.parallelize`. Each run is a
job of its own; the ways take turns, and medians count. Later turns use the plan of the first one.
The slowest rank determines an epoch. A job's first epoch, which traces and plans, does not count.

Input is the time in which training waits for a batch; evaluation has the waits for its own batches.
With ``--profile``, a table has the figures of each phase and rank: work that all ranks do whole
takes as many CPU seconds, or MiB, on each of them as in one process.

The last line is one JSON object: for each model the seconds of an epoch of each way, and of ours
the seconds of input, evaluation and saving; "by_ranks" has them for each number of ranks, "models"
for the largest.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence

from benchmarks.around_the_step.ways import WAYS
from benchmarks.around_the_step.workloads import WORKLOADS
from benchmarks.launcher import figures_of_ranks
from tensoropt.report.text_table import table

__all__ = ["arguments", "summary"]


Figures = dict[str, float]
Ranks = list[dict[str, Figures]]
"""For each rank of a job the figures of its phases."""


def main() -> None:
    """Run, print the times, and end with the JSON line."""
    options = arguments(sys.argv[1:])
    ways = [way for way in WAYS if way != "horovod" or importlib.util.find_spec("horovod")]
    by_ranks: dict[str, dict[str, Figures]] = {}
    with tempfile.TemporaryDirectory() as plans:
        for ranks, model in itertools.product(options.ranks, options.models):
            jobs: dict[str, list[Ranks]] = {way: [] for way in ways}
            for _, way in itertools.product(range(options.turns), ways):
                jobs[way].append(_job(model, way, ranks, options.examples, plans))
            by_ranks.setdefault(str(ranks), {})[model] = summary(jobs)
            print(f"{model}, {ranks} ranks, seconds of an epoch")
            print(_parts(jobs), flush=True)
            if options.profile:
                print(_profile(jobs), flush=True)
    if "horovod" not in ways:
        print("without Horovod, which is not installed")
    print(json.dumps({"models": by_ranks[str(max(options.ranks))], "by_ranks": by_ranks}))


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.around_the_step")
    add = parser.add_argument
    add("--models", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    add("--ranks", nargs="+", type=int, default=[2, 4])
    add("--turns", type=int, default=3)
    add("--examples", type=int, default=1024, help="of an epoch; half as many are evaluated")
    add("--profile", action="store_true", help="print CPU seconds and memory by phase and rank")
    return parser.parse_args(given)


def summary(jobs: dict[str, list[Ranks]]) -> Figures:
    """Median seconds of an epoch of each way, and of the parts of ours."""
    seconds = {way: _median(of, "epoch") for way, of in jobs.items()}
    return seconds | {part: _median(jobs["ours"], part) for part in ("input", "evaluate", "save")}


def _median(jobs: Sequence[Ranks], phase: str) -> float:
    """The median over jobs of the seconds of the slowest rank."""
    return statistics.median(max(rank[phase]["seconds"] for rank in job) for job in jobs)


def _job(model: str, way: str, ranks: int, examples: int, plans: str) -> Ranks:
    """The figures of one job."""
    more = ["--ranks", str(ranks), "--examples", str(examples)]
    return figures_of_ranks(
        "benchmarks.around_the_step.one_fit",
        lambda folder: [model, way, folder, *more],
        None if way == "keras" else ranks,
        plans,
    )


def _parts(jobs: dict[str, list[Ranks]]) -> str:
    """A table of the parts of an epoch; input is a part of training."""
    parts = ("epoch", "train", "input", "evaluate", "summaries", "save")
    rows = [[way, *(f"{_median(of, part):.2f}" for part in parts)] for way, of in jobs.items()]
    return str(table(["way", *parts], rows, [False] + [True] * len(parts)))


def _profile(jobs: dict[str, list[Ranks]]) -> str:
    """A table of each way's last job: the figures of each phase and rank."""
    titles = ["way", "phase", "rank", "seconds", "CPU seconds", "peak MiB", "above MiB"]
    rows = [
        [
            *(way, phase, str(rank), f"{of['seconds']:.2f}", f"{of['cpu_seconds']:.2f}"),
            *(f"{of['peak_mib']:.0f}", f"{of['above_mib']:.0f}"),
        ]
        for way, turns in jobs.items()
        for phase in turns[-1][0]
        for rank, figures in enumerate(turns[-1])
        if "cpu_seconds" in (of := figures[phase])
    ]
    return str(table(titles, rows, [False, False] + [True] * 5))


if __name__ == "__main__":
    main()
