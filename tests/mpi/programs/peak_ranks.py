"""Predicted and measured peak memory of plans on two ranks, as a user sees them.

mpirun -np 2 python peak_ranks.py RESULT.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import tensoropt as tf

BATCH, WIDTH, LAYERS = 256, 512, 4


def compared(algorithm: str) -> list[float | None]:
    """Peak memory of an algorithm's plan in MiB, predicted and measured."""
    tf.reset_default_graph()
    features = tf.placeholder(tf.float32, [None, WIDTH], name="features")
    values = features
    for layer in range(LAYERS):
        weights = tf.get_variable(f"weights{layer}", [WIDTH, WIDTH])
        values = tf.nn.relu(tf.matmul(values, weights))
    step = tf.train.MomentumOptimizer(1e-3, 0.9).minimize(tf.reduce_mean(tf.square(values)))
    plan = tf.find_strategy(batch_size=BATCH, algorithm=algorithm)
    assert plan.peak_is_estimated
    assert plan.peak_bytes is not None
    limit = int(1.25 * plan.peak_bytes)  # so near that the peak is that of a dry run
    plan = tf.find_strategy(batch_size=BATCH, algorithm=algorithm, memory_limit_bytes=limit)
    assert not plan.peak_is_estimated
    assert not any("dry run" in note for note in plan.notes)
    tf.build_execution_graph(plan=plan)
    fed = np.random.default_rng(0).random((BATCH, WIDTH))
    for _ in range(5):
        tf.run(step, {features: fed})
    peak = tf.compare().quantities[2]
    return [peak.predicted, peak.measured]


def main(result: str) -> None:
    """Write what was found."""
    tf.init()
    found = {algorithm: compared(algorithm) for algorithm in ("data_parallel", "tofu")}
    if tf.rank() == 0:
        Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
