"""``python -m benchmarks.speed``: milliseconds of a training step, ours beside other ones.

On two ranks with one core each: without communication, by TensorFlow's
``MultiWorkerMirroredStrategy``, by Horovod if it can be imported, and ours by data parallelism
(with batch normalisation by global and by local statistics) and by ``mini_time``. In one process on
one core: plain TensorFlow and ours. The last line is one JSON object by model and way.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os

from benchmarks.launcher import result_of
from benchmarks.speed.models import MODELS
from tensoropt.report.text_table import table

__all__: list[str] = []


def main() -> None:
    """Run, print the times, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rewrite", action="store_true", help="mini_time with rewriting, too")
    options = parser.parse_args()
    found = {}
    for model in options.models:
        found[model] = {**_measured(model, 1), **_measured(model, options.ranks, options.rewrite)}
        print(model, *(f"{way} {ms:.1f}" for way, ms in found[model].items()), flush=True)
    ways = list(dict.fromkeys(way for of in found.values() for way in of))
    rows = [
        [model, *(f"{of[way]:.1f}" if way in of else "" for way in ways)]
        for model, of in found.items()
    ]
    print(f"ms per step, {options.ranks} ranks")
    print(table(["model", *ways], rows, [False] + [True] * len(ways)))
    if importlib.util.find_spec("horovod") is None:
        print("without Horovod, which is not installed")
    print(json.dumps({"models": found}))


def _measured(model: str, ranks: int, rewrite: bool = False) -> dict[str, float]:
    """Milliseconds of each way on ``ranks`` ranks; one rank is a process on one core."""
    arguments = [model, *["--rewrite"] * rewrite]
    on_one_core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] if ranks == 1 else []
    launched = None if ranks == 1 else ranks
    times: dict[str, float] = result_of(
        "benchmarks.speed.measure", arguments, launched, prefix=on_one_core
    )
    return times


if __name__ == "__main__":
    main()
