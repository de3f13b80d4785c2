"""Every rank trains embeddings whose rows are split, and compares with plain TensorFlow.

mpirun -np N python embedding_ranks.py COUNT SEED
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.job import current
from tensoropt.parallel.choices.choices import strategy_choices
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import (
    Script,
    draw,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)

v1 = tf.compat.v1
BATCHED = frozenset({"words", "labels"})


def script(resource: bool, tied: bool, optimizer: Any) -> Script:
    """A bag of words; where tied, the table is the output layer, too."""
    random = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        words = v1.placeholder(tf.int64, [None, 3], name="words")
        labels = v1.placeholder(tf.int32, [None], name="labels")
        initializer = v1.random_normal_initializer(stddev=0.5, seed=1)
        table = v1.get_variable("table", [24, 12], tf.float64, initializer)
        bag = tf.reduce_sum(tf.nn.embedding_lookup(table, words), axis=1)
        weights = table
        if not tied:
            weights = v1.get_variable("weights", [24, 12], tf.float64, initializer)
        scores = tf.matmul(bag, weights, transpose_b=True)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        loss = tf.reduce_mean(each)
        train = optimizer.minimize(loss)
    feeds = tuple(
        {
            "words": random.integers(24, size=(8, 3)),
            "labels": random.integers(24, size=8).astype(np.int32),
        }
        for _ in range(3)
    )
    return Script(graph, train.name, loss.name, feeds)


def main(count: int, seed: int) -> None:
    """Print the worst error of each strategy over all ranks, and how many split a lookup's rows.

    All but the first of each script do.
    """
    tensoropt.init(allow_copies=True)
    job = current()
    mesh = Mesh.of(job.group.size)
    world = MPIWorld(mesh, job.group, job.transport)
    random = np.random.default_rng(seed)
    errors, by_rows = [], 0
    for written in (
        script(True, False, v1.train.MomentumOptimizer(0.1, 0.9)),
        script(False, False, v1.train.GradientDescentOptimizer(0.5)),
        script(True, True, v1.train.AdamOptimizer(0.01)),
    ):
        truth = train_plain(written)
        graph = written.imported()
        choices = strategy_choices(graph, mesh, BATCHED)
        for number in range(count):
            drawn = draw(graph, choices, mesh, random)
            while number and "vocabulary" not in drawn.kinds:
                drawn = draw(graph, choices, mesh, random)
            by_rows += "vocabulary" in drawn.kinds
            found = train_parallel(
                written, mesh, drawn.numbers, random_prices(number), BATCHED, world, job.agreement
            )
            errors.append(max(job.group.allgather_object(worst_error(found, truth))))
    if job.group.rank == 0:
        print(json.dumps({"errors": errors, "by_rows": by_rows}))


main(int(sys.argv[1]), int(sys.argv[2]))
