"""Linear operators run on each device's shares of partial sums, against plain TensorFlow."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.parallel.choices.choices import Choices, strategy_choices
from tensoropt.parallel.choices.kinds import Kinds
from tensoropt.parallel.choices.partial_operands import partial_operand_sets
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation
from tests.oracles.equality import (
    Script,
    Trained,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.proofs import proof

BATCHED = frozenset({"images"})
WIDTH = 16

tensoropt.enable_graph_mode()
v1 = tf.compat.v1


@functools.cache
def script() -> Script:
    """Products that are added, joined, scaled, transposed, pooled and multiplied before anything
    that is not linear."""
    random = np.random.default_rng(0)
    graph = tf.Graph()

    def weights(name: str, *shape: int) -> tf.Tensor:
        values = v1.random_uniform_initializer(-0.3, 0.3, seed=len(name))
        return v1.get_variable(name, shape, tf.float64, values)

    with graph.as_default():
        images = v1.placeholder(tf.float64, [None, WIDTH], name="images")
        x = tf.tanh(tf.matmul(images, weights("first", WIDTH, WIDTH)))
        both = tf.matmul(x, weights("left", WIDTH, WIDTH)) - tf.reshape(
            tf.matmul(x, weights("right", WIDTH, WIDTH)), [-1, WIDTH]
        )
        y = tf.tanh(both)
        joined = tf.concat(
            [
                tf.matmul(y, weights("one", WIDTH, WIDTH)),
                2.0 * tf.matmul(y, weights("two", WIDTH, WIDTH)),
            ],
            1,
        )
        z = tf.tanh(tf.matmul(joined, weights("narrow", 2 * WIDTH, WIDTH)))
        pixels = tf.reshape(z, [-1, 4, 4, 1]) * weights("channels", 4)
        maps = tf.nn.conv2d(pixels, weights("filters", 1, 1, 4, 8), 1, "SAME")
        pooled = tf.tanh(tf.nn.avg_pool2d(maps, 2, 2, "VALID"))
        added = tf.einsum("bijc,cd->bd", pooled, weights("last", 8, WIDTH))
        stacked = tf.stack([added, tf.matmul(z, weights("other", WIDTH, WIDTH))])
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(stacked, 0)))
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    feeds = tuple({"images": random.normal(size=(8, WIDTH))} for _ in range(2))
    return Script(graph, train.name, loss.name, feeds)


@functools.cache
def truth() -> Trained:
    return train_plain(script())


def _on_shares(group: Choices, derivation: Derivation) -> list[int]:
    """The options under which the group's leader reads partial sums."""
    sums = [n for n, index in enumerate(derivation.indices) if index.partial_inputs]
    splits = [option[group.leader].splits for option in group.options]
    return [number for number, each in enumerate(splits) if any(each[n] for n in sums)]


def test_which_operators_may_read_partial_sums() -> None:
    """Operators may if fewer or smaller tensors are then added up."""
    graph = script().imported()
    chosen = partial_operand_sets(graph, Kinds(graph).derivations)
    found = {name: (graph[name].type, sets) for name, sets in chosen.items()}
    assert sorted(found.values()) == [
        ("AvgPool", ((0,),)),
        ("ConcatV2", ((0, 1),)),
        ("MatMul", ((0,),)),
        ("Mul", ((1,),)),
        ("Pack", ((0, 1),)),
        ("Reshape", ((0,),)),
        ("Sub", ((0, 1),)),
        ("Sum", ((0,),)),
    ]


@pytest.mark.parametrize(
    ("devices", "count"), [(2, 1), (4, 1), proof(2, 3), proof(4, 3), proof(6, 2)]
)
def test_training_equals_one_device(devices: int, count: int) -> None:
    """Results are equal whether the operators read partial sums or whole tensors."""
    mesh, graph = Mesh.of(devices), script().imported()
    choices = strategy_choices(graph, mesh, BATCHED)
    derivations = Kinds(graph, partial_operands=True).derivations
    random = np.random.default_rng(devices)
    for seed in range(count):
        numbers, on_shares = [], 0
        for group in choices:
            among = _on_shares(group, derivations[group.leader])
            if not among or random.random() < 0.3:
                among = list(range(len(group.options)))
            else:
                on_shares += 1
            numbers.append(int(random.choice(among)))
        assert on_shares
        found = train_parallel(script(), mesh, tuple(numbers), random_prices(seed), BATCHED)
        assert worst_error(found, truth()) <= 1e-12, numbers
