"""``python -m benchmarks.startup``: seconds from a start to its plan, and to its first step's end.

Keras models are trained by ``fit``: plain Keras, and ours on one, two and four ranks. A start is
"cold" with empty caches: collectives in C++ and the search's kernels are compiled. It is "new" with
what is compiled but without kept plans, and "kept" with the plan of an earlier start. Each run is a
process of its own; the ways take turns, and medians count. With several ranks, the CPU seconds are
those of the slowest rank, with the mean beside them. Ratios compare with plain Keras in one
process. The last line is one JSON object by model and way.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence

from benchmarks.launcher import figures_of_ranks
from benchmarks.startup.models import MODELS
from tensoropt.report.text_table import table

__all__: list[str] = []

_PLAIN = "plain"
_STATES = ("cold", "new", "kept")
Figures = dict[str, float]


def main() -> None:
    """Run, print the times, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--states", nargs="+", choices=_STATES, default=list(_STATES))
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    ways = [_PLAIN, *(f"{n} {state}" for n in options.ranks for state in options.states)]
    found: dict[str, dict[str, Figures]] = {}
    for model in options.models:
        found[model] = _medians(model, ways, options.turns)
        print(f"{model}: seconds to the plan, and to the end of the first step")
        print(_table(found[model]), flush=True)
    print(json.dumps({"turns": options.turns, "models": found}))


def _medians(model: str, ways: Sequence[str], turns: int) -> dict[str, Figures]:
    with tempfile.TemporaryDirectory() as plans:
        for way in ways:
            if way.endswith("kept"):
                _run(model, way, plans)
        runs: dict[str, list[Figures]] = {way: [] for way in ways}
        for _ in range(turns):
            for way in ways:
                runs[way].append(_run(model, way, plans))
    return {
        way: {key: statistics.median(run[key] for run in some) for key in some[0]}
        for way, some in runs.items()
    }


def _run(model: str, way: str, plans: str) -> Figures:
    """The times of one start."""
    ranks = 1 if way == _PLAIN else int(way.split()[0])
    options = ["--started", str(time.time()), *["--plain"] * (way == _PLAIN)]
    with tempfile.TemporaryDirectory() as caches:
        cold = {"XDG_CACHE_HOME": caches, "NUMBA_CACHE_DIR": f"{caches}/numba"}
        of = figures_of_ranks(
            "benchmarks.startup.first_step",
            lambda folder: [model, folder, *options],
            ranks if ranks > 1 else None,
            plans if way.endswith("kept") else "none",
            cold if way.endswith("cold") else {},
        )
    cpu = [each["cpu_seconds"] for each in of]
    return {
        "cpu_seconds": max(cpu),
        "mean_cpu_seconds": statistics.mean(cpu),
        "wall_seconds": max(each["wall_seconds"] for each in of),
        "plan_seconds": max(each["plan_seconds"] for each in of),
        "loss": of[0]["loss"],
    }


def _table(found: dict[str, Figures]) -> str:
    plain = found[_PLAIN]
    rows = [
        [
            way,
            f"{figures['plan_seconds']:.1f}" if way != _PLAIN else "",
            f"{figures['cpu_seconds']:.1f}",
            f"{figures['mean_cpu_seconds']:.1f}",
            f"{figures['wall_seconds']:.1f}",
            f"{figures['cpu_seconds'] / plain['cpu_seconds']:.2f}",
            f"{figures['wall_seconds'] / plain['wall_seconds']:.2f}",
            f"{figures['loss']:.6g}",
        ]
        for way, figures in found.items()
    ]
    titles = ["way", "plan", "CPU", "mean", "wall", "CPU / plain", "wall / plain", "loss"]
    return str(table(titles, rows, [False] + [True] * (len(titles) - 1)))


if __name__ == "__main__":
    main()
