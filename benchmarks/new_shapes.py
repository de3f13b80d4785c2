"""``python -m benchmarks.new_shapes``: what batches of other lengths cost, and what a step does.

Each figure comes from a process of its own: the first step, the first step of a new length, and a
step of a known length, beside so many operators that the step does not need; the resident memory
after so many steps of random lengths. The last line is one JSON object; seconds are of the
process's cores (``cpu``) and of the clock (``wall``), microseconds of cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

__all__: list[str] = []

_ROWS, _WORDS, _WIDTH, _CLASSES = 8, 100, 16, 4
_LENGTHS = 400  # random lengths are below
_REPEATED = 300  # steps of a known length


def main() -> None:
    """Run, print, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unneeded", type=int, default=20_000, help="operators beside the step's")
    parser.add_argument("--steps", type=int, default=200, help="of random lengths")
    parser.add_argument("--devices", type=int, default=1, help="virtual ranks")
    parser.add_argument("--part", choices=["lengths", "memory", "step"], help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is not None:
        print(json.dumps(_PARTS[options.part](options)))
        return
    found = {
        "plain": {part: _in_process(part, options, True) for part in _PARTS},
        "ours": {part: _in_process(part, options, False) for part in _PARTS},
    }
    for way, parts in found.items():
        for part, figures in parts.items():
            print(way, part, *(f"{name} {value:.6g}" for name, value in figures.items()))
    print(json.dumps(found))


def _in_process(part: str, options: Any, plain: bool) -> dict[str, float]:
    given = [("unneeded", options.unneeded), ("steps", options.steps), ("devices", options.devices)]
    arguments = [text for name, value in given for text in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "benchmarks.new_shapes", "--part", part, *arguments]
    done = subprocess.run(
        command + ["--plain"] * plain, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _session(options: Any, unneeded: int) -> Callable[[int], Any]:
    """A function that makes one training step at a length."""
    import tensorflow as tf

    import tensoropt

    v1 = tf.compat.v1
    if options.plain:
        v1.disable_eager_execution()
        v1.disable_resource_variables()
    else:
        tensoropt.enable_graph_mode()
        tensoropt.init(options.devices)
    words = v1.placeholder(tf.int32, [_ROWS, None], name="words")
    labels = v1.placeholder(tf.int32, [_ROWS], name="labels")
    table = v1.get_variable("table", [_WORDS, _WIDTH])
    weights = v1.get_variable("weights", [_WIDTH, _CLASSES])
    rows = tf.nn.embedding_lookup(table, words)
    scores = tf.matmul(tf.reduce_mean(tf.tanh(rows), axis=1), weights)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
    )
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    beside = rows
    for _ in range(unneeded // 2):
        beside = tf.nn.relu(beside + rows)
    random = np.random.default_rng(0)
    session: Any = v1.Session() if options.plain else tensoropt.Session()
    session.run(v1.global_variables_initializer())

    def step(length: int) -> Any:
        fed = random.integers(_WORDS, size=(_ROWS, length)).astype(np.int32)
        classes = random.integers(_CLASSES, size=_ROWS).astype(np.int32)
        return session.run([loss, train], {words: fed, labels: classes})

    return step


def _seconds(action: Callable[[], Any]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    return time.process_time() - cpu, time.perf_counter() - wall


def _lengths(options: Any) -> dict[str, float]:
    """The first step, and the least and the median of those of ten new lengths."""
    step = _session(options, options.unneeded)
    first = _seconds(lambda: step(10))
    new = [_seconds(lambda length=length: step(length)) for length in range(11, 21)]  # type: ignore[misc]
    again = [_seconds(lambda length=length: step(length)) for length in range(11, 21)]  # type: ignore[misc]
    return {
        "first_cpu": first[0],
        "first_wall": first[1],
        "new_cpu": min(cpu for cpu, _ in new),
        "new_wall": min(wall for _, wall in new),
        "new_wall_median": float(np.median([wall for _, wall in new])),
        "again_wall": min(wall for _, wall in again),
    }


def _memory(options: Any) -> dict[str, float]:
    """Resident bytes after a quarter of the steps of random lengths, and after all."""
    step = _session(options, 0)
    lengths = np.random.default_rng(1).integers(1, _LENGTHS, options.steps)
    resident = []
    cpu = time.process_time()
    for length in lengths:
        step(int(length))
        resident.append(_resident_bytes())
    return {
        "quarter_mib": resident[options.steps // 4 - 1] / 2**20,
        "all_mib": resident[-1] / 2**20,
        "peak_mib": max(resident) / 2**20,
        "cpu": time.process_time() - cpu,
    }


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _step(options: Any) -> dict[str, float]:
    """Microseconds of a step of a known length: the least of ten rounds."""
    step = _session(options, 0)
    step(10)
    rounds = []
    for _ in range(10):
        cpu, wall = _seconds(lambda: [step(10) for _ in range(_REPEATED // 10)])
        rounds.append((cpu / (_REPEATED // 10), wall / (_REPEATED // 10)))
    return {
        "cpu_us": 1e6 * min(cpu for cpu, _ in rounds),
        "wall_us": 1e6 * min(wall for _, wall in rounds),
    }


_PARTS: dict[str, Callable[[Any], dict[str, float]]] = {
    "lengths": _lengths,
    "memory": _memory,
    "step": _step,
}

if __name__ == "__main__":
    main()
