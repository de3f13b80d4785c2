"""The time that a save takes from the steps beside which its files are written.

    mpirun -np N python -m benchmarks.checkpoints.beside FOLDER WIDTH BATCH STEPS ROUNDS

Rounds of STEPS steps take turns: without a save, with one that is written beside the steps, with or
without the graph, and with one that returns when its files are there. The first rank prints as JSON
the median seconds of a round of each kind, of the call of the save, and the size of the checkpoint
in MiB.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import tensoropt as tf

__all__: list[str] = []

_LAYERS = 4
_KINDS = ("none", "beside", "beside_without_graph", "at_once")


def main(folder: str, width: int, batch: int, steps: int, rounds: int) -> None:
    """Train, save and print."""
    tf.init()
    features = tf.placeholder(tf.float32, [None, width])
    values = features
    for layer in range(_LAYERS):
        initializer = tf.random_normal_initializer(stddev=0.03, seed=layer)
        weights = tf.get_variable(f"weights{layer}", [width, width], initializer=initializer)
        values = tf.nn.relu(tf.matmul(values, weights))
    loss = tf.reduce_mean(tf.square(values - features))
    train = tf.train.AdamOptimizer(0.001).minimize(loss)
    saver = tf.train.Saver(max_to_keep=1)
    fed = {features: np.random.default_rng(0).random((batch, width), np.float32)}
    seconds: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    calls: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for number in range(rounds + 1):  # the first one emits operators
            for kind in _KINDS:
                tf.init(save_beside=kind.startswith("beside"))
                graph_too = kind != "beside_without_graph"
                session.run(train, fed)
                started = time.perf_counter()
                if kind != "none":
                    saver.save(session, f"{folder}/model", number, write_meta_graph=graph_too)
                called = time.perf_counter()
                for _ in range(steps):
                    session.run(train, fed)
                ended = time.perf_counter()
                tf.train.latest_checkpoint(folder)  # waits: a round has no more than its own save
                if number:
                    seconds[kind].append(ended - started)
                    calls[kind].append(called - started)
        size = sum(path.stat().st_size for path in Path(folder).glob(f"model-{rounds}.data*"))
    if tf.rank() == 0:
        found: dict[str, Any] = {kind: statistics.median(seconds[kind]) for kind in _KINDS}
        found |= {f"{kind}_call": statistics.median(calls[kind]) for kind in _KINDS[1:]}
        print(json.dumps({**found, "mib": size / 2**20, "steps": steps}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
