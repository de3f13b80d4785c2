"""What a script sees on several ranks. Every rank checks and writes what it found to a file.

    mpirun -np N python frontend_ranks.py CASE FOLDER

CASE is "all" (a plan for all ranks) or "fewer" (one that needs half of them).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow

import tensoropt as tf
from tensoropt.frontend.planning import training_step

BATCH = 24
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(BATCH, 64)).astype(np.float32)
TARGETS = RANDOM.normal(size=BATCH).astype(np.float32)


def model() -> tuple[Any, Any, Any, Any]:
    """Placeholders, loss and training operator of a small regression."""
    features = tf.placeholder(tf.float32, [None, 64], name="features")
    targets = tf.placeholder(tf.float32, [None], name="targets")
    scale = tf.placeholder(tf.float32, [], name="scale")
    weights = tf.get_variable("weights", [64, 32], initializer=tf.ones_initializer())
    scores = tf.reduce_sum(tf.nn.tanh(tf.matmul(features, weights)), axis=1)
    loss = scale * tf.reduce_mean(tf.square(scores - targets), name="loss")
    step = tf.train.MomentumOptimizer(1e-3, 0.9).minimize(loss)
    return (features, targets, scale), loss, step, weights


def feed(placeholders: Any, scale: float) -> dict[Any, Any]:
    features, targets, factor = placeholders
    return {features: FEATURES, targets: TARGETS, factor: scale}


def plain(placeholders: Any, loss: Any, step: Any, weights: Any, scale: float) -> list[Any]:
    """Loss after each of three steps and the final weights, on one device."""
    v1 = tensorflow.compat.v1
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        losses = [session.run([loss, step], feed(placeholders, scale))[0] for _ in range(3)]
        return [losses, session.run(weights)]


def all_ranks(folder: Path) -> dict[str, Any]:
    placeholders, loss, step, weights = model()
    expected = plain(placeholders, loss, step, weights, scale=1.0)
    tf.find_strategy("profiling", batch_size=BATCH)
    plan = tf.find_strategy(batch_size=BATCH)
    if tf.rank() == 0:
        plan.save(folder / "plan.json")
    tf.build_execution_graph(plan=plan)
    # Rank 0 gives the values that are not split: the other ranks' own values do not count.
    own = feed(placeholders, scale=1.0 if tf.rank() == 0 else 100.0)
    losses = [tf.run({"loss": loss, "step": [step]}, own)["loss"] for _ in range(3)]
    np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
    np.testing.assert_allclose(tf.run(weights), expected[1], rtol=1e-5)
    features, targets, _ = placeholders
    last = tf.run(loss, {**own, features: FEATURES[:7], targets: TARGETS[:7]})
    for ends in ([0, 7], range(0, BATCH + 1, BATCH // tf.size())):  # all rows on one rank; as read
        first, stop = [*ends, *[ends[-1]] * tf.size()][tf.rank() : tf.rank() + 2]
        rows = {features: FEATURES[first:stop], targets: TARGETS[first:stop]}
        whole = {features: FEATURES[: ends[-1]], targets: TARGETS[: ends[-1]]}
        shared = tf.run(loss, {**own, **rows}, feed="share")
        np.testing.assert_allclose(shared, tf.run(loss, {**own, **whole}), rtol=1e-6)
    tf.build_execution_graph(plan=tf.Plan.load(folder / "plan.json"))
    again = tf.run(loss, own)
    return {
        "losses": [float(value) for value in losses],
        "last": float(last),
        "again": float(again),
        "sizes": [tf.rank(), tf.size(), tf.local_rank(), tf.local_size()],
        "summary": tf.summary(),
    }


def fewer_ranks(folder: Path) -> dict[str, Any]:
    placeholders, loss, step, weights = model()
    expected = plain(placeholders, loss, step, weights, scale=1.0)
    half = tf.size() // 2
    profile = tf.find_strategy("profiling", batch_size=BATCH, parallelism=[half - 1, half])
    limit = int(profile.points[0].memory_bytes * 1.1) - 1  # too little for fewer than half
    # Of so small a step what is there for a moment is more.
    training_step.dry_run_peak = lambda *_: None
    alone: Any = {"pipeline": False, "microbatches": 1, "save_memory": False}
    fewest = tf.find_strategy(
        "mini_parallelism", batch_size=BATCH, memory_limit_bytes=limit, **alone
    )
    assert fewest.devices == half
    plan = tf.find_strategy("mini_cost", batch_size=BATCH, parallelism=[half, tf.size() + 1])
    assert (plan.devices, plan.option) == (half, "mini_cost")
    (folder / f"before{tf.rank()}").touch()
    tf.build_execution_graph(plan=plan)
    losses = [tf.run([loss, step], feed(placeholders, 1.0))[0] for _ in range(3)]
    np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
    tf.build_execution_graph(plan=tf.find_strategy(batch_size=BATCH))  # of those that are left
    again = tf.run(loss, feed(placeholders, 1.0))
    return {
        "losses": [float(value) for value in losses],
        "again": float(again),
        "sizes": [tf.rank(), tf.size(), tf.local_rank(), tf.local_size()],
        "summary": tf.summary(),
    }


def main(case: str, folder: Path) -> None:
    """Run a case; the file is named after the process's rank at the start."""
    tf.init(allow_copies=True)
    rank = tf.rank()
    found = {"all": all_ranks, "fewer": fewer_ranks}[case](folder)
    (folder / f"found{rank}.json").write_text(json.dumps(found))
    print(f"rank {rank} is done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(os.fspath(sys.argv[2])))
