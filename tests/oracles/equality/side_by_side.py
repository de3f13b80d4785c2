"""``python -m tests.oracles.equality.side_by_side``: searched branches against plain TensorFlow.

Random steps have towers that are joined one after another, with branches inside branches, an
operator that all branches read, and shared weights. `find_strategy` plans each step on virtual
ranks, which train three steps. Losses and updated variables are compared with plain TensorFlow's.
The last line is one JSON object: numbers of steps, of failures and of plans by their stages, and
the worst error.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections import Counter

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.frontend.job.job import shutdown
from tensoropt.plan import Plan
from tests.oracles.equality.engine import Script, Trained, train_plain, worst_error

__all__ = ["forest", "main", "searched", "trained"]

BAR = 1e-10
_BATCH, _WIDTH, _STEPS = 3, 8, 3  # a batch of 3 does not divide by 2 or 4 ranks
v1 = tf.compat.v1


def forest(seed: int) -> Script:
    """A step of random towers.

    Args:
        seed: seed of all draws. Steps with an even seed have an operator before all towers.
    """
    random = np.random.default_rng(seed)
    graph = tf.Graph()
    with graph.as_default():
        labels = v1.placeholder(tf.float64, [None, _WIDTH], name="labels")
        common = v1.placeholder(tf.float64, [None, _WIDTH], name="common")
        stem = tf.tanh(common) if seed % 2 == 0 else common
        glorot = v1.glorot_uniform_initializer
        make = functools.partial(v1.get_variable, dtype=tf.float64, use_resource=True)
        shared = make("shared", [_WIDTH, _WIDTH], initializer=glorot(seed=1))
        ends: list[tf.Tensor] = []
        for tower in range(int(random.integers(3, 6))):
            values = stem
            for layer in range(int(random.integers(2, 10))):
                name, first = f"tower{tower}_{layer}", glorot(seed=10 * tower + layer)
                weights = make(name, [_WIDTH, _WIDTH], initializer=first)
                values = tf.tanh(tf.matmul(values, shared if random.random() < 0.1 else weights))
            ends.append(values)
        loss = 0.1 * tf.reduce_mean(tf.square(ends[0]))
        while len(ends) > 1:
            first, second = (ends.pop(int(random.integers(len(ends)))) for _ in range(2))
            joined = tf.concat([first, second], 1) if random.random() < 0.5 else first * second
            name, given = f"joined{len(ends)}", int(joined.shape[-1])
            weights = make(name, [given, _WIDTH], initializer=glorot(seed=len(ends)))
            ends.append(tf.tanh(tf.matmul(joined, weights)))
        loss += tf.reduce_mean(tf.square(ends[0] - labels))
        train = v1.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    feeds = tuple(
        {name: random.normal(size=(_BATCH, _WIDTH)) for name in ("labels", "common")}
        for _ in range(_STEPS)
    )
    return Script(graph, train.name, loss.name, feeds)


def searched(script: Script, devices: int) -> Plan:
    """Start a job with virtual ranks, and find the plan of a script."""
    shutdown()
    tensoropt.init(devices=devices, cluster="2x8-v100")
    with script.graph.as_default():
        return tensoropt.find_strategy(batch_size=_BATCH, pipeline="auto", rewrite=False)


def trained(script: Script, plan: Plan) -> Trained:
    """Train by a plan in the running job."""
    with script.graph.as_default():
        tensoropt.build_execution_graph(plan=plan)
        losses = [
            tensoropt.run(
                [script.loss, script.train], {f"{name}:0": x for name, x in values.items()}
            )[0]
            for values in script.feeds
        ]
        names = script.variables
        return Trained(np.array(losses), dict(zip(names, tensoropt.run(names), strict=True)))


def main() -> int:
    """Plan, train and compare; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first step")
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4, 8])
    options = parser.parse_args()
    tensoropt.enable_graph_mode()
    failures, worst, stages = 0, 0.0, Counter[int]()
    for seed in range(options.first, options.first + options.count):
        devices = options.devices[seed % len(options.devices)]
        script = forest(seed)
        plan = searched(script, devices)
        error = worst_error(trained(script, plan), train_plain(script))
        stages[len(plan.stages)] += 1
        worst = max(worst, error)
        if error > BAR:
            failures += 1
            print(f"FAILED {seed} on {devices}: {error:.1e}", flush=True)
    result = {
        "steps": options.count,
        "failures": failures,
        "stages": {str(count): stages[count] for count in sorted(stages)},
        "worst": worst,
    }
    print(json.dumps(result))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
