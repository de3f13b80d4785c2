"""Every rank trains a small network of windows, split over space, as one device does.

mpirun -np N python spatial_ranks.py COUNT
"""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

import tensoropt
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.frontend.job.job import current
from tensoropt.parallel.choices.choices import Choices, strategy_choices
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_under
from tests.oracles.equality import Script, random_prices, train_parallel, train_plain, worst_error

BATCHED = frozenset({"images"})
v1 = tf.compat.v1


def script() -> Script:
    """Convolutions, one transposed, and pools whose halos reach over a whole piece."""
    graph = tf.Graph()
    random = np.random.default_rng(0)
    with graph.as_default():
        images = v1.placeholder(tf.float64, [None, 16, 8, 2], name="images")

        def filters(name: str, *shape: int) -> tf.Tensor:
            return v1.get_variable(name, shape, tf.float64, v1.glorot_uniform_initializer(seed=1))

        x = tf.nn.conv2d(images, filters("first", 3, 5, 2, 4), 1, "SAME")
        x = v1.nn.max_pool(tf.nn.relu(x), 3, 2, "SAME")
        x = tf.nn.depthwise_conv2d(x, filters("depthwise", 5, 3, 4, 1), [1, 1, 1, 1], "SAME")
        x = tf.nn.conv2d_transpose(x, filters("up", 3, 3, 2, 4), [4, 16, 8, 2], 2, "SAME")
        x = v1.nn.avg_pool(x, [3, 4], [1, 1], "SAME")
        loss = tf.reduce_mean(tf.square(x - 0.5))
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    feeds = tuple({"images": random.normal(size=(4, 16, 8, 2))} for _ in range(2))
    return Script(graph, train.name, loss.name, feeds)


def spatial(
    choices: tuple[Choices, ...], own: Script, random: np.random.Generator
) -> tuple[list[int], int]:
    """An option of every group, at random, of those that split the most space by rules.

    And how many operators are so split.
    """
    graph = own.imported()
    numbers = []
    split = 0
    for group in choices:
        scores = [
            sum(
                len(axes)
                for name, way in option.items()
                for index, axes in zip(
                    derivation_under(graph[name], way).indices, way.splits, strict=True
                )
                if index.spelled_out
            )
            for option in group.options
        ]
        best = [number for number, score in enumerate(scores) if score == max(scores)]
        numbers.append(int(random.choice(best)))
        split += max(scores) > 0
    return numbers, split


def main(count: int) -> None:
    """Print the worst error of each strategy, over all ranks."""
    tensoropt.init(allow_copies=True)
    job = current()
    mesh = Mesh.of(job.group.size)
    world = MPIWorld(mesh, job.group, job.transport)
    own = script()
    truth = train_plain(own)
    choices = strategy_choices(own.imported(), mesh, BATCHED)
    random = np.random.default_rng(0)
    errors = []
    for number in range(count):
        numbers, split = spatial(choices, own, random)
        found = train_parallel(
            own, mesh, numbers, random_prices(number), BATCHED, world, job.agreement
        )
        errors.append(max(job.group.allgather_object(worst_error(found, truth))))
    if job.group.rank == 0:
        print(json.dumps({"errors": errors, "split": split}))


main(int(sys.argv[1]))
