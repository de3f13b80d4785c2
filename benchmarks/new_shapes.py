"""``python -m benchmarks.new_shapes``: what batches of other lengths cost, and what a step does.

Each figure comes from a process of its own: the first step, the first step of a new length, and a
step of a known length, beside so many operators that the step does not need, and of a data-parallel
Transformer without any; the resident memory after so many steps of random lengths. The last line is
one JSON object; seconds are of the process's cores (``cpu``) and of the clock (``wall``),
microseconds of cores.
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
_LAYERS, _HEADS = 4, 4
_FIRST = 10  # length
_LENGTHS = 400  # random lengths are below
_REPEATED = 300  # steps of a known length


def main() -> None:
    """Run, print, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unneeded", type=int, default=20_000, help="operators beside the step's")
    parser.add_argument("--steps", type=int, default=200, help="of random lengths")
    parser.add_argument("--devices", type=int, default=1, help="virtual ranks")
    parser.add_argument("--part", choices=list(_PARTS), help=argparse.SUPPRESS)
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


def _session(
    options: Any, unneeded: int, loss_of: Callable[[Any, Any], Any] | None = None
) -> Callable[[int], Any]:
    """A function that makes one training step at a length.

    Args:
        options: how it is run.
        unneeded: operators beside it.
        loss_of: from rows [rows, length, width] and the words to the loss; by default one of the
            rows' average.
    """
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
    rows = tf.nn.embedding_lookup(table, words)
    if loss_of is None:
        weights = v1.get_variable("weights", [_WIDTH, _CLASSES])
        scores = tf.matmul(tf.reduce_mean(tf.tanh(rows), axis=1), weights)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        )
    else:
        loss = loss_of(rows, words)
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    beside = rows
    for _ in range(unneeded // 2):
        beside = tf.nn.relu(beside + rows)
    random = np.random.default_rng(0)
    if loss_of is not None and not options.plain:
        plan = tensoropt.find_strategy(algorithm="data_parallel", shapes={words: (_ROWS, _FIRST)})
        tensoropt.build_execution_graph(plan=plan)
    session: Any = v1.Session() if options.plain else tensoropt.Session()
    session.run(v1.global_variables_initializer())

    def step(length: int) -> Any:
        fed = random.integers(_WORDS, size=(_ROWS, length)).astype(np.int32)
        classes = random.integers(_CLASSES, size=_ROWS).astype(np.int32)
        fed_labels = {labels: classes} if loss_of is None else {}
        return session.run([loss, train], {words: fed, **fed_labels})

    return step


def _transformer_loss(rows: Any, words: Any) -> Any:
    """A decoder's: each word is told from those before it, in batches padded with word 0."""
    import tensorflow as tf

    v1 = tf.compat.v1
    length, size = tf.shape(rows)[1], _WIDTH // _HEADS
    real = tf.cast(tf.not_equal(words, 0), tf.float32)
    seen = tf.linalg.band_part(tf.ones([length, length]), -1, 0) * real[:, None, None, :]

    def dense(values: Any, width: int, name: str) -> Any:
        weights = v1.get_variable(name, [int(values.shape[-1]), width])
        bias = v1.get_variable(f"{name}_bias", [width])
        flat = tf.matmul(tf.reshape(values, [-1, int(values.shape[-1])]), weights)
        made = tf.reshape(flat, [tf.shape(values)[0], length, width])
        return tf.nn.bias_add(made, bias)

    def heads(values: Any) -> Any:
        apart = tf.reshape(values, [tf.shape(values)[0], length, _HEADS, size])
        return tf.transpose(apart, [0, 2, 1, 3])

    def normalised(values: Any) -> Any:
        mean, variance = tf.nn.moments(values, [-1], keepdims=True)
        return (values - mean) * tf.math.rsqrt(variance + 1e-6)

    values = rows
    for layer in range(_LAYERS):
        query, key, value = (heads(dense(values, _WIDTH, f"{part}{layer}")) for part in "qkv")
        scores = tf.matmul(query, key, transpose_b=True) * size**-0.5 + (seen - 1) * 1e9
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
        mixed = dense(tf.reshape(mixed, tf.shape(values)), _WIDTH, f"mixed{layer}")
        values = normalised(values + tf.nn.dropout(mixed, rate=0.1))
        inner = tf.nn.relu(dense(values, 4 * _WIDTH, f"inner{layer}"))
        values = normalised(values + tf.nn.dropout(dense(inner, _WIDTH, f"outer{layer}"), rate=0.1))
    told = dense(values, _WORDS, "words")[:, :-1]
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=words[:, 1:], logits=told)
    return tf.reduce_sum(each * real[:, 1:]) / tf.reduce_sum(real[:, 1:])


def _seconds(action: Callable[[], Any]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    return time.process_time() - cpu, time.perf_counter() - wall


def _lengths(options: Any) -> dict[str, float]:
    """Steps of new lengths beside operators that they do not need."""
    return _first_steps(_session(options, options.unneeded))


def _transformer(options: Any) -> dict[str, float]:
    """Steps of new lengths of a Transformer."""
    return _first_steps(_session(options, 0, _transformer_loss))


def _first_steps(step: Callable[[int], Any]) -> dict[str, float]:
    """The first step, and the first, the least and the median of those of ten new lengths."""
    first = _seconds(lambda: step(_FIRST))
    new = [_seconds(lambda length=length: step(length)) for length in range(11, 21)]  # type: ignore[misc]
    again = [_seconds(lambda length=length: step(length)) for length in range(11, 21)]  # type: ignore[misc]
    return {
        "first_cpu": first[0],
        "first_wall": first[1],
        "second_cpu": new[0][0],
        "second_wall": new[0][1],
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
    "transformer": _transformer,
    "memory": _memory,
    "step": _step,
}

if __name__ == "__main__":
    main()
