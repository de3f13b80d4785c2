"""``python -m benchmarks.search.uneven``: plans with and without uneven splits.

Each step is searched in three ways in one process: with the offers of uneven splits, with those
that joined batches do not have ("unjoined": reshapes gather an uneven batch), and without any. A
decoder has a vocabulary of 50,257 words, which no number of devices divides; a perceptron has
layers of width 509; a mixture has three experts. The frontier's fastest point and its point of
least memory are printed. ``--batch`` gives another batch. ``--pairs`` plans pairs of one step,
whose batch, vocabulary or width is even in the first and uneven in the second, and compares the CPU
seconds. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import tensoropt as tf
from benchmarks.search.zoo import attention, mixing
from benchmarks.search.zoo.measuring import built, request_of_script
from benchmarks.search.zoo.parts import cross_entropy, layer_normalised, linear, tokens
from benchmarks.search.zoo.planning import planned
from examples.models.lstm import lstm_language_model
from examples.models.parts import variable
from tensoropt.cost.cluster import load_cluster
from tensoropt.parallel.choices import choices
from tensoropt.planner import request as requests
from tensoropt.planner.kernels import load_kernels
from tensoropt.planner.searches.frontier_search import search_frontier
from tensoropt.search.baselines import data_parallel

__all__ = ["main"]

WIDTH, CLASSES, BATCH = 509, 10, 256
SEARCHED = ("even", "unjoined", "uneven")


def perceptron(layers: int, width: int = WIDTH) -> tf.Operation:
    """A perceptron whose widths are a prime number by default."""
    values = tf.placeholder(tf.float32, [None, width], name="values")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    hidden = values
    for number in range(layers):
        hidden = tf.nn.relu(linear(hidden, width, f"layer{number + 1}"))
    loss = cross_entropy(linear(hidden, CLASSES, "scores"), labels)
    return tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)


def rnn(layers: int, width: int = 512, vocabulary: int = 50256) -> None:
    """An LSTM over 20 steps, see `examples.models.lstm`."""
    loss = lstm_language_model(width, layers, vocabulary=vocabulary).loss
    tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)


def three_experts(layers: int) -> None:
    """A mixture of three experts, see `benchmarks.search.zoo.mixing.experts`."""
    length, width, hidden, vocabulary = 128, 512, 2048, 1000
    read, targets = tokens("tokens", length), tokens("targets", length)
    values = tf.gather(variable("words", [vocabulary, width], tf.float32), read)
    for number in range(layers):
        with tf.variable_scope(f"layer{number + 1}"):
            values += mixing.mixture(layer_normalised(values, "first"), 3, hidden)
    scores = tf.einsum("btd,dv->btv", values, variable("scores", [width, vocabulary], tf.float32))
    tf.train.AdamOptimizer(1e-3).minimize(cross_entropy(scores, targets))


STEPS: dict[str, tuple[Callable[[int], object], int, tuple[int, ...]]] = {
    "perceptron": (perceptron, BATCH, (8,)),
    "experts": (three_experts, 64, (8,)),
    "decoder": (attention.decoder, 64, (8, 16)),
    "narrow decoder": (partial(attention.decoder, width=512, vocabulary=4000), 30, (4,)),
}
"""For each name a function of the number of layers, the batch, and the numbers of devices."""

PAIRS: dict[str, tuple[Callable[..., object], str, tuple[int, int]]] = {
    "decoder, batch": (partial(attention.decoder, vocabulary=50256), "batch", (64, 63)),
    "decoder, vocabulary": (attention.decoder, "vocabulary", (50256, 50257)),
    "perceptron, batch": (partial(perceptron, width=512), "batch", (64, 63)),
    "perceptron, width": (perceptron, "width", (512, 509)),
    "RNN, batch": (rnn, "batch", (64, 63)),
    "RNN, vocabulary": (rnn, "vocabulary", (50256, 50257)),
    "RNN, width": (rnn, "width", (512, 509)),
}
"""For each pair a function of the number of layers, the size that differs, and its two values."""


@contextmanager
def offers(way: str) -> Iterator[None]:
    """Let searches have no uneven splits, all but those of joined batches, or all."""
    with ExitStack() as patches:
        if way != "uneven":
            patches.enter_context(patch.object(requests, "joined_units", lambda *_, **__: ()))
        if way == "even":
            nothing: frozenset[int] = frozenset()
            patches.enter_context(patch.object(choices, "uneven_extents", lambda *_: nothing))
        yield


def searched(
    name: str, layers: int, devices: int, cluster: str, way: str, batch: int | None
) -> dict[str, Any]:
    """Return data parallelism and the ends of a step's frontier: megabytes of a device, and
    milliseconds."""
    build, usual, _ = STEPS[name]
    loaded = load_cluster(cluster)
    request = request_of_script(partial(build, layers), batch or usual, loaded, devices)
    begun = time.process_time()
    with offers(way):
        problem, frontier = search_frontier(request, devices)
        only_batch = data_parallel.incumbent(problem)
    spent = time.process_time() - begun
    memory, milliseconds = frontier.memory / 1e6, frontier.time / 1e6
    fastest, smallest = int(frontier.time.argmin()), int(frontier.memory.argmin())
    return {
        "fastest_ms": round(float(milliseconds[fastest]), 3),
        "fastest_mb": round(float(memory[fastest]), 1),
        "smallest_mb": round(float(memory[smallest]), 1),
        "smallest_ms": round(float(milliseconds[smallest]), 3),
        "data_parallel_ms": round(float(only_batch.time.min()) / 1e6, 3),
        "data_parallel_mb": round(float(only_batch.memory.min()) / 1e6, 1),
        "points": len(frontier),
        "within": frontier.within,
        "cpu_seconds": round(spent, 1),
    }


def compared(name: str, layers: int, devices: int, cluster: str) -> dict[str, float]:
    """Return the CPU seconds of planning both steps of a pair, and their ratio; the batch is 64
    where it does not differ."""
    build, varied, values = PAIRS[name]
    seconds: list[float] = []
    for value in values:
        batch, sizes = (value, {}) if varied == "batch" else (64, {varied: value})
        script = built(partial(build, layers, **sizes))
        seconds.append(sum(planned(script, batch, load_cluster(cluster), devices)[1]))
    even, uneven = seconds
    line = {
        "even": round(even, 2),
        "uneven": round(uneven, 2),
        "ratio": round(uneven / even, 2),
    }
    print(f"{name}: {line}", flush=True)
    return line


def main() -> None:
    """Search, or measure, and end with the JSON line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.uneven")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(STEPS)}; with --pairs, of those"
    )
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--devices", type=int, nargs="+", help="in place of each step's own")
    parser.add_argument("--batch", type=int, help="in place of each step's own")
    parser.add_argument("--cluster", default="2x8-v100")
    parser.add_argument("--pairs", action="store_true", help="of even and uneven sizes, see above")
    options = parser.parse_args()
    known = PAIRS if options.pairs else STEPS
    if unknown := [name for name in options.names if name not in known]:
        parser.error(
            f"names are of {', '.join(map(repr, known))}"
            f"{' with --pairs' * options.pairs}. Got {', '.join(map(repr, unknown))}."
        )
    load_kernels()
    if options.pairs:
        given = options.layers, max(options.devices or (8,)), options.cluster
        print(json.dumps({pair: compared(pair, *given) for pair in options.names or PAIRS}))
        return
    found: dict[str, dict[str, Any]] = {}
    for name in options.names or STEPS:
        for devices in options.devices or STEPS[name][2]:
            for way in SEARCHED:
                line = searched(name, options.layers, devices, options.cluster, way, options.batch)
                found[f"{name}, {devices} devices, {way}"] = line
                print(f"{name}, {devices} devices, {way}: {line}")
                sys.stdout.flush()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
