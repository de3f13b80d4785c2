"""Local statistics of batch normalisation, against plain TensorFlow that does them by hand."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.batch_norm import BATCH_NORMS, with_batch_norm
from tensoropt.parallel.choices.choices import configurations_of
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.planner.prices.step_time import step_time
from tests.oracles.equality import (
    Script,
    choices_of,
    draw,
    executor_of,
    planned_of,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.oracles.equality.stages import draw_pipeline, train_pipeline
from tests.proofs import proof

v1 = tf.compat.v1

tensoropt.enable_graph_mode()

SHAPE = (4, 4, 4, 3)
LAYERS = ("first", "second")
BATCHED = frozenset({"x"})
Pieces = tuple[int, int, int]  # of batch, height and width
WHOLE = (1, 1, 1)


def _fused(x: Any, scale: Any, offset: Any, averaging: float) -> Any:
    """The kernel; of a factor below 1 its own moving averages, from a mean of 1 and 2."""
    old = [] if averaging == 1 else [tf.ones_like(scale), 2 * tf.ones_like(scale)]
    return v1.nn.fused_batch_norm(
        x, scale, offset, *old, epsilon=1e-3, exponential_avg_factor=averaging
    )


def _by_hand(x: Any, scale: Any, offset: Any, averaging: float, pieces: Pieces) -> Any:
    """Normalise every piece by itself, and average the returned statistics over pieces."""
    found: list[tuple[Any, Any]] = []

    def normalised(part: Any, dim: int) -> Any:
        if dim == len(pieces):
            y, *statistics = _fused(part, scale, offset, averaging)
            found.append(tuple(statistics))
            return y
        parts = tf.split(part, pieces[dim], dim)
        return tf.concat([normalised(each, dim + 1) for each in parts], dim)

    y = normalised(x, 0)
    mean, variance = (sum(each) / len(found) for each in zip(*found, strict=True))
    return y, mean, variance


@functools.cache
def script(pieces: tuple[Pieces, Pieces] | None = None, penalised: bool = False) -> Script:
    """Two normalisations with moving averages; by hand where it is said how each is split.

    The second one's kernel averages, too. Penalised, it trains through their gradients, too.
    """
    graph = tf.Graph()
    random = np.random.default_rng(0)
    with graph.as_default():
        x = values = v1.placeholder(tf.float32, SHAPE, name="x")
        updates = []
        for number, layer in enumerate(LAYERS):
            with v1.variable_scope(layer):
                one, none = v1.ones_initializer(), v1.zeros_initializer()
                kernel = v1.get_variable(
                    "kernel", [1, 1, 3, 3], initializer=v1.glorot_uniform_initializer(seed=2)
                )
                scale = v1.get_variable("scale", [3], initializer=one)
                offset = v1.get_variable("offset", [3], initializer=none)
                moving = [
                    v1.get_variable("mean", [3], initializer=none, trainable=False),
                    v1.get_variable("variance", [3], initializer=one, trainable=False),
                ]
                values = tf.nn.conv2d(values, kernel, 1, "SAME")
                given = values, scale, offset, (1.0, 0.25)[number]
                made = _fused(*given) if pieces is None else _by_hand(*given, pieces[number])
                values = tf.nn.relu(made[0])
                updates += [
                    v1.assign(old, old * 0.9 + new * 0.1)
                    for old, new in zip(moving, made[1:], strict=True)
                ]
        loss = tf.reduce_mean(tf.square(values - 0.3))
        if penalised:
            (by_images,) = v1.gradients(loss, [x])
            loss += 3.0 * tf.reduce_sum(tf.square(by_images))
        with tf.control_dependencies(updates):
            train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    images = [random.normal(size=SHAPE) + np.arange(4)[:, None, None, None] for _ in range(2)]
    feeds = tuple({"x": each.astype(np.float32)} for each in images)
    return Script(graph, train.name, loss.name, feeds)


def norms(graph: Any) -> list[str]:
    return [op.name for op in graph if op.type == "FusedBatchNormV3"]


def pieces_under(of: Script, mesh: Mesh, numbers: Sequence[int]) -> tuple[Pieces, Pieces]:
    """How a strategy splits each normalisation: batch, height, width."""
    chosen = configurations_of(choices_of(of, mesh, BATCHED), numbers)
    first, second = norms(of.imported())

    def pieces(name: str) -> Pieces:
        batch, height, width = (mesh.pieces(axes) for axes in chosen[name].splits[:3])
        return batch, height, width

    return pieces(first), pieces(second)


def data_parallel(of: Script, mesh: Mesh) -> tuple[int, ...]:
    """Everything that has a batch is split over it: option numbers."""
    axes = tuple(range(len(mesh.axes)))
    numbers = []
    for group in choices_of(of, mesh, BATCHED):
        batched = [
            number
            for number, option in enumerate(group.options)
            if all(
                c.splits[:1] == (axes,) and len(of.imported()[name].outputs[0].shape) == 4
                for name, c in option.items()
            )
        ]
        numbers.append(batched[0] if batched else 0)
    return tuple(numbers)


def random_strategy(of: Script, mesh: Mesh) -> tuple[int, ...]:
    """Draw a strategy that splits a normalisation over space."""
    random = np.random.default_rng(0)
    while True:
        numbers = draw(of.imported(), choices_of(of, mesh, BATCHED), mesh, random).numbers
        if any(max(pieces[1:]) > 1 for pieces in pieces_under(of, mesh, numbers)):
            return numbers


@pytest.mark.parametrize(("devices", "penalised"), [proof(2, False), (4, False), (2, True)])
def test_each_device_normalises_its_own_shard(devices: int, penalised: bool) -> None:
    of, mesh = script(None, penalised), Mesh.of(devices)
    parallel = data_parallel(of, mesh)
    assert pieces_under(of, mesh, parallel) == ((devices, 1, 1), (devices, 1, 1))
    for number, numbers in enumerate([parallel, random_strategy(of, mesh)]):
        pieces = pieces_under(of, mesh, numbers)
        found = train_parallel(
            of, mesh, numbers, random_prices(number), BATCHED, batch_norm="local"
        )
        truth = train_plain(script(pieces, penalised))
        assert worst_error(found, truth) <= 1e-4, (numbers, pieces)


def test_the_reference_by_hand_is_the_kernel_where_nothing_is_split() -> None:
    whole, split = (train_plain(script((each, each))) for each in (WHOLE, (2, 1, 1)))
    truth = train_plain(script())
    assert worst_error(whole, truth) <= 1e-6
    assert worst_error(split, truth) > 1e-2


def test_one_device_has_the_global_batch() -> None:
    of, mesh = script(), Mesh.of(1)
    numbers = (0,) * len(choices_of(of, mesh, BATCHED))
    found = [
        train_parallel(of, mesh, numbers, random_prices(0), BATCHED, batch_norm=each)
        for each in ("global", "local")
    ]
    assert worst_error(*found) == 0


def test_microbatches_have_statistics_of_their_own() -> None:
    """Each device, or each stage, takes the statistics of its own shard of a microbatch."""
    of, mesh = script(), Mesh.of(2)
    truths = {n: train_plain(script(((n, 1, 1), (n, 1, 1)))) for n in (2, 4)}
    parallel = data_parallel(of, mesh)
    price = random_prices(0)
    found = train_parallel(of, mesh, parallel, price, BATCHED, batch_norm="local", microbatches=2)
    assert worst_error(found, truths[4]) <= 1e-4
    for count in (2, 4):
        random = np.random.default_rng(count)
        drawn = draw_pipeline(of, random, (1, 1, 1), microbatches=count, batch_norm="local")
        staged = train_pipeline(of, drawn, batch_norm="local")
        assert worst_error(staged, truths[count]) <= 1e-4


def collectives(of: Script, fetched: str, batch_norm: Any) -> list[str]:
    """Return the collectives of data parallelism on two devices."""
    mesh = Mesh.of(2)
    planned = planned_of(of, mesh, data_parallel(of, mesh), BATCHED)
    executor = executor_of(
        of.graph, mesh, planned, random_prices(0), BATCHED, batch_norm=batch_norm
    )
    tensors, operations = ([fetched], []) if ":" in fetched else ([], [fetched])
    program = executor.program(tensors, operations, of.shapes)
    executor.close()
    return [str(record) for record in program.collectives]


def test_statistics_that_nothing_reads_are_not_averaged() -> None:
    of = script()
    output = f"{norms(of.imported())[1]}:0"  # which is brought together, too
    assert len(collectives(of, output, "global")) == 3
    assert len(collectives(of, output, "local")) == 1


def test_statistics_of_all_layers_are_averaged_together() -> None:
    """One collective replaces an allgather and an allreduce of each layer, also in predictions."""
    of, mesh = script(), Mesh.of(2)
    whole, own = (collectives(of, of.train, each) for each in ("global", "local"))
    assert len(whole) - len(own) == 2 * len(LAYERS) - 1
    (averaged,) = (record for record in own if "statistics" in record)
    assert averaged.startswith("sums_of_4_statistics: float32[12] ")
    planned = planned_of(of, mesh, data_parallel(of, mesh), BATCHED)
    cost = ClusterCostModel(load_cluster("2x8-v100"), mesh)
    calls = [
        step_time(
            Strategy(with_batch_norm(of.imported(), each), mesh, planned, BATCHED), cost
        ).calls
        for each in BATCH_NORMS
    ]
    assert calls == [len(whole), len(own)]


def test_statistics_that_are_fetched_are_averages_over_the_devices() -> None:
    of, mesh = script(), Mesh.of(2)
    name = norms(of.imported())[0]
    planned = planned_of(of, mesh, data_parallel(of, mesh), BATCHED)
    executor = executor_of(of.graph, mesh, planned, random_prices(0), BATCHED, batch_norm="local")
    fetches = [f"{name}:{number}" for number in (1, 2)]
    values = of.imported()[name].inputs[0]
    found = executor.run([*fetches, str(values)], [], of.feeds[0])
    executor.close()
    halves = np.split(found[str(values)], 2)
    mean = np.mean([half.mean((0, 1, 2)) for half in halves], 0)
    variance = np.mean([half.var((0, 1, 2), ddof=1) for half in halves], 0)
    np.testing.assert_allclose(found[fetches[0]], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[fetches[1]], variance, rtol=1e-5)
