"""CPU seconds and memory of ranks in ``evaluate``, ``predict``: ``python -m benchmarks.forward``.

Plain Keras in one process and ours on several ranks take turns; each run is a job of its own, and
the least of several repeats counts in a job, the median of the jobs between them. "ratio" is the
CPU seconds of the rank with most over the N-th part of plain Keras's, in a run of several seconds;
it has the fixed costs of a run, which do not depend on its length: Keras makes a data set on every
rank. "fixed" and "batch" are CPU seconds of such costs and of a batch. "share batch" are those of
plain Keras with an N-th part of a batch, in N processes at once: what a rank takes on this machine
if nothing is communicated. "peak" is the most memory of a rank in a batch, as TensorFlow's
allocator counts it, beside the plan's.

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
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.launcher import figures_of_ranks
from tensoropt.report.text_table import table

__all__ = ["arguments", "compared"]

MODELS = ("resnet", "tables", "transformer", "lstm")
CALLS = ("evaluate", "predict")
TOLERANCE = 1e-4  # of results, relative
FIGURES = ("ratio", "batch", "share batch", "plain batch", "fixed", "plain fixed")

Job = list[dict[str, Any]]
"""For each rank of a job its figures by call."""


def main() -> None:
    """Run, print the figures, and end with the JSON line."""
    options = arguments(sys.argv[1:])
    figures: dict[str, dict[str, Any]] = {}
    rows = []
    with tempfile.TemporaryDirectory() as plans:
        for model in options.models:
            plain, shares, ours = _jobs(model, options, plans)
            for ranks, call in itertools.product(options.ranks, CALLS):
                of = compared(plain, shares[ranks], ours[ranks], ranks, call)
                figures.setdefault(str(ranks), {}).setdefault(model, {})[call] = of
                seconds = [f"{of[title]:.3f}" for title in FIGURES]
                peaks = [f"{of['peak']:.1f}", f"{of['planned']:.1f}", str(of["equal"])]
                rows.append([str(ranks), model, call, *seconds, *peaks])
    titles = ["ranks", "model", "call", *FIGURES, "peak MiB", "plan's MiB", "equal"]
    print(table(titles, rows, [True, False, False] + [True] * 8 + [False]))
    print(json.dumps(figures))


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forward")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--batch", type=int, default=0, help="examples; 0 for the model's own")
    return parser.parse_args(given)


def compared(
    plain: Sequence[Job], shares: Sequence[Job], ours: Sequence[Job], ranks: int, call: str
) -> dict[str, Any]:
    """The figures of one call: medians over jobs, of the rank with most CPU seconds."""

    def most(jobs: Sequence[Job], key: str) -> float:
        return statistics.median(max(float(rank[call][key]) for rank in job) for job in jobs)

    truth = plain[0][0][call]["result"]
    results = [rank[call]["result"] for job in ours for rank in job]
    return {
        "ratio": ranks * most(ours, "all") / most(plain, "all"),
        "batch": most(ours, "batch"),
        "share batch": most(shares, "batch"),
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


def _jobs(
    model: str, options: argparse.Namespace, plans: str
) -> tuple[list[Job], dict[int, list[Job]], dict[int, list[Job]]]:
    """Jobs in turns: plain Keras; for each number of ranks, plain Keras on shares, and ours."""
    batch = options.batch
    plain: list[Job] = []
    shares: dict[int, list[Job]] = {ranks: [] for ranks in options.ranks}
    ours: dict[int, list[Job]] = {ranks: [] for ranks in options.ranks}
    for _ in range(options.turns):
        plain.append(_job([model, "plain", batch, 1], None, plans))
        for ranks in options.ranks:
            ours[ranks].append(_job([model, "ours", batch, ranks], ranks, plans))
            with ThreadPoolExecutor(ranks) as pool:
                one = [model, "share", batch, ranks]
                found = [pool.submit(_job, one, None, plans) for _ in range(ranks)]
                shares[ranks].append([rank for job in found for rank in job.result()])
    return plain, shares, ours


def _job(arguments: Sequence[object], ranks: int | None, plans: str) -> Job:
    """The figures of one job of `one_job`, which gets these arguments and a folder."""
    given = [*map(str, arguments)]
    return figures_of_ranks(
        "benchmarks.forward.one_job", lambda folder: [*given, folder], ranks, plans
    )


if __name__ == "__main__":
    main()
