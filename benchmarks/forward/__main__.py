"""CPU seconds and memory of ranks in ``evaluate``, ``predict``: ``python -m benchmarks.forward``.

Plain Keras in one process and ours on several ranks take turns; each run is a job of its own, and
the least of several repeats counts in a job, the median of the jobs between them. "ratio" is the
CPU seconds of the rank with most over the N-th part of plain Keras's, in a run of several seconds;
it has the fixed costs of a run, which do not depend on its length: Keras makes a data set on every
rank. "fixed" and "batch" are CPU seconds of such costs and of a batch. "peak" is the most memory of
a rank in a batch, as TensorFlow's allocator counts it, beside the plan's.

The last line is one JSON object with the figures of each number of ranks, model and call.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks.launcher import figures_of_ranks
from tensoropt.report.text_table import table

__all__ = ["arguments", "compared"]

MODELS = ("resnet", "tables", "transformer", "lstm")
CALLS = ("evaluate", "predict")
TOLERANCE = 1e-4  # of results, relative
TITLES = ("ranks", "model", "call", "ratio", "batch", "plain batch", "fixed", "plain fixed")

Job = list[dict[str, Any]]
"""For each rank of a job its figures by call."""


def main() -> None:
    """Run, print the figures, and end with the JSON line."""
    options = arguments(sys.argv[1:])
    figures: dict[str, dict[str, Any]] = {}
    rows = []
    with tempfile.TemporaryDirectory() as plans:
        for model in options.models:
            jobs: dict[int, list[Job]] = {ranks: [] for ranks in (1, *options.ranks)}
            for _, ranks in itertools.product(range(options.turns), jobs):
                jobs[ranks].append(_job(model, ranks, plans, options.batch))
            for ranks, call in itertools.product(options.ranks, CALLS):
                of = compared(jobs[1], jobs[ranks], ranks, call)
                figures.setdefault(str(ranks), {}).setdefault(model, {})[call] = of
                seconds = [f"{of[title]:.3f}" for title in TITLES[3:]]
                peaks = [f"{of['peak']:.1f}", f"{of['planned']:.1f}", str(of["equal"])]
                rows.append([str(ranks), model, call, *seconds, *peaks])
    titles = [*TITLES, "peak MiB", "plan's MiB", "equal"]
    print(table(titles, rows, [True, False, False] + [True] * 7 + [False]))
    print(json.dumps(figures))


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forward")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--batch", type=int, default=0, help="examples; 0 for the model's own")
    return parser.parse_args(given)


def compared(plain: Sequence[Job], ours: Sequence[Job], ranks: int, call: str) -> dict[str, Any]:
    """The figures of one call: medians over jobs, of the rank with most CPU seconds."""

    def most(jobs: Sequence[Job], key: str) -> float:
        return statistics.median(max(float(rank[call][key]) for rank in job) for job in jobs)

    truth = plain[0][0][call]["result"]
    results = [rank[call]["result"] for job in ours for rank in job]
    return {
        "ratio": ranks * most(ours, "all") / most(plain, "all"),
        "batch": most(ours, "batch"),
        "plain batch": most(plain, "batch"),
        "fixed": most(ours, "fixed"),
        "plain fixed": most(plain, "fixed"),
        "peak": most(ours, "peak_mib"),
        "planned": most(ours, "planned_mib"),
        "equal": all(_are_equal(result, truth) for result in results),
    }


def _are_equal(result: Any, truth: Any) -> bool:
    pairs = zip(result, truth, strict=True) if isinstance(truth, list) else [(result, truth)]
    return all(math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE) for a, b in pairs)


def _job(model: str, ranks: int, plans: str, batch: int) -> Job:
    """The figures of one job: plain Keras in one process, ours on several ranks."""
    way, launched = ("plain", None) if ranks == 1 else ("ours", ranks)
    module = "benchmarks.forward.one_job"
    return figures_of_ranks(
        module, lambda folder: [model, way, str(batch), folder], launched, plans
    )


if __name__ == "__main__":
    main()
