"""``python -m benchmarks.around_the_step.input_in_shares``: who calls an expensive map, how often.

A small model trains on a shuffled data set with a map that computes for 5 ms an example, by ours
and by Horovod, whose ranks read ``shard`` of the data set. Each run is a job of its own; the ways
take turns. A job's first epoch, which traces and plans, does not count. The slowest rank determines
an epoch.

The last line is one JSON object: for each way the calls of the map on each rank in an epoch, and
the median seconds of an epoch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import keras
import tensorflow as tf

from benchmarks.around_the_step.ways import set_threads, way_of
from benchmarks.launcher import figures_of_ranks

__all__ = ["expensive", "repetitions"]

BATCH, WIDTH = 64, 64
EPOCHS = 3
WAYS = ("ours", "horovod")


def main() -> None:
    """Start the jobs, or be a rank of one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.around_the_step.input_in_shares")
    add = parser.add_argument
    add("--ranks", type=int, default=4)
    add("--turns", type=int, default=3)
    add("--examples", type=int, default=512, help="of an epoch")
    add("--milliseconds", type=float, default=5.0, help="of the map, for an example")
    add("--rank-of", choices=WAYS, help=argparse.SUPPRESS)
    add("--repetitions", type=int, help=argparse.SUPPRESS)
    add("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        _train(options)
        return
    count = repetitions(options.milliseconds / 1e3)
    jobs: dict[str, list[list[Any]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as plans:
        for _, way in itertools.product(range(options.turns), WAYS):
            jobs[way].append(_job(way, options, count, plans))
            print(way, json.dumps(jobs[way][-1]), flush=True)
    print(json.dumps({way: _summary(turns) for way, turns in jobs.items()}))


def expensive(count: int, path: str = "") -> Callable[[Any, Any], Any]:
    """Return a map that multiplies matrices a number of times, and notes its calls in a file."""

    def prepared(features: Any, target: Any) -> Any:
        if path:
            tf.print(target, output_stream=f"file://{path}")
        matrix = tf.linalg.diag(features)
        for _ in tf.range(count):
            matrix = tf.tanh(matrix @ matrix)
        return features + 0.0 * matrix[0], target

    return prepared


def repetitions(seconds: float) -> int:
    """Return the number of multiplications with which `expensive` takes a time on one thread."""
    features = tf.zeros([WIDTH])
    some = 200
    function = tf.function(expensive(some))
    times = []
    for _ in range(7):
        started = perf_counter()
        function(features, features)
        times.append(perf_counter() - started)
    return max(1, round(some * seconds / min(times)))


def _train(options: argparse.Namespace) -> None:
    """Train on one rank; write its calls of the map and the seconds of its epochs."""
    set_threads(options.rank_of, options.ranks)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input([WIDTH]), keras.layers.Dense(1)])
    way = way_of(options.rank_of, model)
    model.compile("sgd", "mse")
    notes = options.folder / f"calls-{way.rank}"
    numbers = tf.random.stateless_uniform([options.examples, WIDTH], [1, 2])
    data = tf.data.Dataset.from_tensor_slices((numbers, numbers[:, :1]))
    if way.shards > 1:
        data = data.shard(way.shards, way.rank)
    data = data.shuffle(options.examples, seed=1)
    data = data.map(expensive(options.repetitions, str(notes)), tf.data.AUTOTUNE)
    epochs = _Epochs()
    batches = data.batch(BATCH // way.shards).prefetch(2)
    model.fit(batches, epochs=EPOCHS, callbacks=[*way.callbacks, epochs], verbose=0)
    calls = len(notes.read_text().splitlines()) / EPOCHS
    figures = {"calls": calls, "seconds": epochs.seconds[1:]}
    (options.folder / f"rank-{way.rank}.json").write_text(json.dumps(figures))


class _Epochs(keras.callbacks.Callback):  # type: ignore[misc]
    """The seconds of epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._started = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self._started = perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self.seconds.append(perf_counter() - self._started)


def _job(way: str, options: argparse.Namespace, count: int, plans: str) -> list[Any]:
    """The figures of the ranks of one job."""
    given = ["--rank-of", way, "--repetitions", str(count)]
    given += ["--ranks", str(options.ranks), "--examples", str(options.examples)]
    module = "benchmarks.around_the_step.input_in_shares"
    return figures_of_ranks(
        module, lambda folder: [*given, "--folder", folder], options.ranks, plans
    )


def _summary(turns: list[list[Any]]) -> dict[str, Any]:
    """The calls of each rank in an epoch, and the median seconds of the slowest rank's epochs."""
    epochs = [max(of) for job in turns for of in zip(*(r["seconds"] for r in job), strict=True)]
    calls = [[round(rank["calls"], 1) for rank in job] for job in turns]
    return {"calls": calls[-1], "seconds": round(statistics.median(epochs), 3)}


if __name__ == "__main__":
    main()
