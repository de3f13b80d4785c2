"""Programs that hold for all sizes of dimensions that nothing splits, against plain TensorFlow."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.execution.runtime.emitted_graph import Extents
from tensoropt.execution.runtime.open_dims import OpenDims
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import (
    Script,
    choices_of,
    draw,
    executor_of,
    planned_of,
    train_plain,
    worst_error,
)
from tests.oracles.equality.engine import Trained
from tests.oracles.equality.padded import BATCHED, PADDED, data_parallel
from tests.proofs import proof

v1 = tf.compat.v1
Planned = Mapping[str, Configuration]

tensoropt.enable_graph_mode()


@functools.cache
def plain(name: str) -> Trained:
    return train_plain(PADDED[name]())


def trained(
    script: Script, mesh: Mesh, planned: Planned, is_open: bool = True
) -> tuple[Trained, list[Mapping[str, Extents]]]:
    """What training leaves, and for which shapes programs of a step were emitted."""
    executor = executor_of(script.graph, mesh, planned, lambda *_: 1, BATCHED)
    if not is_open:
        executor._programs.kept._open_dims = OpenDims(script.graph, (), False)
    losses = []
    for values in script.feeds:
        losses.append(executor.run([script.loss], [script.train], values)[script.loss])
    emitted = [each.shapes for each in executor._programs.kept.emitted if each.shapes]
    variables = executor.run(script.variables, [], {})
    executor.close()
    return Trained(np.array(losses), variables), emitted


def assert_same_bits(found: Trained, other: Trained) -> None:
    np.testing.assert_array_equal(found.losses, other.losses)
    for name, value in other.variables.items():
        np.testing.assert_array_equal(found.variables[name], value)


@pytest.mark.parametrize(
    ("name", "devices"), [proof("transformer", 2), ("averages", 1), ("averages", 4)]
)
def test_the_first_size_has_a_program_and_all_others_share_one(name: str, devices: int) -> None:
    script, mesh = PADDED[name](), Mesh.of(devices)
    found, emitted = trained(script, mesh, data_parallel(script, mesh))
    assert worst_error(found, plain(name)) < 1e-12
    assert len(emitted) == 2
    assert emitted[1]["words"][1] is None


def random_plan(script: Script, mesh: Mesh, number: int) -> dict[str, Configuration]:
    """A strategy drawn at random, data parallel where it would split the length, and elsewhere
    for a share of the operators."""
    random = np.random.default_rng(number)
    choices = choices_of(script, mesh, BATCHED)
    drawn = draw(script.imported(), choices, mesh, random)
    planned = planned_of(script, mesh, drawn.numbers, BATCHED)
    shapes = {**script.shapes, "words": (*script.shapes["words"][:1], None)}
    opened = import_graph(script.graph, [script.train], shapes)
    share = random.random()
    for name, configuration in data_parallel(script, mesh).items():
        specs = [*opened[name].input_specs, *opened[name].outputs] if name in opened else []
        is_open = any(-1 in spec.shape for spec in specs)
        if is_open or random.random() < share:
            planned[name] = configuration
    return planned


@pytest.mark.parametrize("number", [0, *map(proof, range(1, 4))])
def test_results_are_those_of_a_program_for_each_size(number: int) -> None:
    script, mesh = PADDED["averages"](), Mesh.of((2, 4)[number % 2])
    script = replace(script, feeds=script.feeds[:4])
    planned = random_plan(script, mesh, number)
    found, emitted = trained(script, mesh, planned)
    assert len(emitted) == 2
    assert_same_bits(found, trained(script, mesh, planned, is_open=False)[0])


def small(middle: str) -> Script:
    """Some words' rows, something along the length, and their largest."""
    graph = tf.Graph()
    with graph.as_default():
        words = v1.placeholder(tf.int32, [8, None], name="words")
        table = v1.get_variable(
            "table", [24, 4], tf.float64, v1.random_normal_initializer(stddev=0.5, seed=1)
        )
        rows = tf.tanh(tf.gather(table, words), name="rows")
        if middle == "reverse":
            rows = tf.reverse(rows, [1]) + rows
        loss = tf.reduce_sum(tf.reduce_max(rows, 1))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    random = np.random.default_rng(0)
    feeds = tuple(
        {"words": random.integers(24, size=(8, length)).astype(np.int32)} for length in (6, 8, 10)
    )
    return Script(graph, train.name, loss.name, feeds)


def test_a_plan_that_splits_the_length_has_a_program_for_each() -> None:
    script, mesh = small("nothing"), Mesh.of(2)
    planned = data_parallel(script, mesh)
    splits = planned["rows"].splits
    planned["rows"] = Configuration(((), (0,), *splits[2:]))
    found, emitted = trained(script, mesh, planned)
    assert worst_error(found, train_plain(script)) < 1e-12
    assert [each["words"][1] for each in emitted] == [6, 8, 10]


def test_what_is_not_described_for_all_sizes_has_a_program_for_each() -> None:
    script, mesh = small("reverse"), Mesh.of(2)
    found, emitted = trained(script, mesh, data_parallel(script, mesh))
    assert worst_error(found, train_plain(script)) < 1e-12
    assert [each["words"][1] for each in emitted] == [6, 8, 10]


def test_fetches_of_open_shapes_are_whole() -> None:
    """This also holds for tensors in pieces whose rows are a length times the batch."""
    graph = tf.Graph()
    with graph.as_default():
        words = v1.placeholder(tf.float64, [4, None], name="words")
        flat = tf.reshape(words * 2, [-1])
        size, shape = tf.size(words), tf.shape(flat)
    script = Script(graph, "", "", ({"words": np.ones([4, 6])},))
    mesh = Mesh.of(2)
    axes: tuple[int, ...] = (0,)
    planned = {"mul": Configuration((axes, ())), flat.op.name: Configuration((axes,))}
    executor = executor_of(graph, mesh, planned, lambda *_: 1, BATCHED)
    for length in (6, 5, 7):
        values = np.arange(4.0 * length).reshape(4, length)
        names = [flat.name, size.name, shape.name]
        found = executor.run(names, [], {"words": values})
        np.testing.assert_array_equal(found[flat.name], 2 * values.reshape(-1))
        assert found[size.name] == 4 * length
        assert found[shape.name].tolist() == [4 * length]
    assert len(executor._programs.kept.emitted) == 2
    executor.close()
    assert script.feeds
