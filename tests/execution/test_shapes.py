"""Feeds of other shapes and odd values under random strategies, against plain TensorFlow."""

from __future__ import annotations

import functools
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.errors import FeedError
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime import kept_programs
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.world.world import SingleProcessWorld
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.parallel.choices.choices import configurations_of, strategy_choices
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep, plan_reshard
from tests.oracles.equality import draw, random_prices
from tests.proofs import proof

v1 = tf.compat.v1
BATCHED = frozenset({"images", "labels"})
ROWS, INPUTS, CLASSES = 8, 6, 4
_drop_programs = Executor._drop_programs

tensoropt.enable_graph_mode()


@functools.cache
def script() -> tuple[tf.Graph, str, str, str]:
    """A perceptron's graph, and the names of its training operator, loss and scores."""
    graph = tf.Graph()
    with graph.as_default():
        images = v1.placeholder(tf.float64, [None, INPUTS], name="images")
        labels = v1.placeholder(tf.int32, [None], name="labels")
        rate = v1.placeholder_with_default(tf.constant(0.1, tf.float64), [], name="rate")
        shift = v1.placeholder_with_default(tf.zeros([1, 8], tf.float64), [None, 8], name="shift")
        with tf.device("/gpu:0"):
            weights = [
                v1.get_variable(
                    f"weights{n}",
                    shape,
                    tf.float64,
                    v1.random_normal_initializer(stddev=0.5, seed=n),
                )
                for n, shape in enumerate([[INPUTS, 8], [8, CLASSES]])
            ]
        hidden = tf.nn.relu(tf.matmul(images, weights[0]) + shift)
        flat = tf.reshape(hidden, [-1, tf.shape(hidden)[1]])  # a shape known at run time
        scores = tf.matmul(flat, weights[1], name="scores")
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        loss = tf.reduce_mean(each)
        train = v1.train.GradientDescentOptimizer(rate).minimize(loss)
    return graph, train.name, loss.name, scores.name


def feed(rows: int, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "images": random.normal(size=(rows, INPUTS)),
        "labels": random.integers(CLASSES, size=rows).astype(np.int32),
    }


def executor(number: int, devices: int) -> Executor:
    """An executor under a strategy drawn at random for `ROWS` rows."""
    graph, train, _, _ = script()
    mesh = Mesh.of(devices)
    shapes = {name: value.shape for name, value in feed(ROWS).items()}
    logical = import_graph(graph, [train], shapes)
    choices = strategy_choices(logical, mesh, BATCHED)
    drawn = draw(logical, choices, mesh, np.random.default_rng(number))
    price = random_prices(number)

    def steps(shape: Any, dtype: str, source: Layout, target: Layout) -> tuple[ReshardStep, ...]:
        if source == target:
            return ()
        return plan_reshard(mesh, tuple(shape), tf.as_dtype(dtype).size, source, target, price)

    planned = configurations_of(choices, drawn.numbers)
    pipeline = Pipeline.of_mesh(SingleProcessWorld(mesh), planned, steps)
    return Executor(graph, pipeline, StepOptions(BATCHED, 1), Agreement(None))


def replicated(graph: tf.Graph, devices: int) -> Executor:
    """An executor that runs everything on every device."""
    pipeline = Pipeline.of_mesh(SingleProcessWorld(Mesh.of(devices)), {}, no_steps)
    return Executor(graph, pipeline, StepOptions(frozenset(), 1), Agreement(None))


def no_steps(*_: Any) -> tuple[ReshardStep, ...]:
    return ()


def both(
    number: int, runs: list[tuple[list[str], list[str], dict[str, Any]]], devices: int = 2
) -> None:
    """Some runs, one after the other, fetch the same from TensorOpt and from plain TensorFlow."""
    graph = script()[0]
    run = executor(number, devices)
    config = v1.ConfigProto(allow_soft_placement=True)  # the script asks for a device
    with v1.Session(graph=graph, config=config) as session:
        with graph.as_default():
            session.run([variable.initializer for variable in v1.global_variables()])
        for tensors, operations, values in runs:
            fed = {f"{name}:0": value for name, value in values.items()}
            truth = session.run([tensors, operations], fed)[0]
            found = run.run(tensors, operations, values)
            for name, value in zip(tensors, truth, strict=True):
                np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12)
    run.close()


@pytest.mark.parametrize(("number", "devices"), [(0, 2), proof(1, 4)])
def test_batches_of_any_size(number: int, devices: int) -> None:
    """A last batch, one row, and none; evaluation of another size; then training goes on."""
    _, train, loss, scores = script()
    sizes = [ROWS, 5, 1, 12, ROWS]
    runs = [([loss, scores], [train], feed(rows, step)) for step, rows in enumerate(sizes)]
    runs.insert(3, ([scores], [], {"images": feed(3)["images"]}))
    runs.insert(4, ([scores], [], {"images": feed(0)["images"]}))
    both(number, runs, devices)


def test_programs_for_many_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are dropped with their graph; variables and later steps stay the same."""
    monkeypatch.setattr(kept_programs, "_FEW_SHAPES", 1)
    monkeypatch.setattr(kept_programs, "_MOST_SHAPES", 2)
    dropped = []

    def drop(self: Executor) -> None:
        dropped.append(weakref.ref(self._session.graph))
        assert len({frozenset(each.shapes.items()) for each in self._programs.kept.emitted}) <= 3
        _drop_programs(self)

    monkeypatch.setattr(Executor, "_drop_programs", drop)
    _, train, loss, scores = script()
    sizes = np.random.default_rng(0).permutation(20)[:5]
    both(0, [([loss, scores], [train], feed(int(n), step)) for step, n in enumerate(sizes)])
    assert len(dropped) > 1
    assert not any(graph() for graph in dropped)


def test_resource_variables_outlive_the_programs_of_other_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_programs, "_FEW_SHAPES", 1)
    monkeypatch.setattr(kept_programs, "_MOST_SHAPES", 2)
    graph = tf.Graph()
    with graph.as_default():
        values = v1.placeholder(tf.float64, [None], name="values")
        with v1.variable_scope("", use_resource=True):
            total = v1.get_variable("total", [], tf.float64, v1.zeros_initializer())
        with tf.control_dependencies([v1.assign_add(total, tf.reduce_sum(values))]):
            added = total.read_value()
    run = replicated(graph, 2)
    session = run._session
    for size in range(6):
        found = run.run([added.name], [], {"values": np.ones(size)})
        assert found[added.name] == sum(range(size + 1))
    assert run._session is not session
    run.close()


def test_a_table_keeps_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of the operator is in the session, and cannot be moved to another one."""
    monkeypatch.setattr(kept_programs, "_FEW_SHAPES", 1)
    monkeypatch.setattr(kept_programs, "_MOST_SHAPES", 2)
    graph = tf.Graph()
    with graph.as_default():
        keys = v1.placeholder(tf.int64, [None], name="keys")
        pairs = tf.lookup.KeyValueTensorInitializer([1, 2], [10, 20], tf.int64, tf.int64)
        found = tf.lookup.StaticHashTable(pairs, -1).lookup(keys)
        start = v1.tables_initializer()
    run = replicated(graph, 1)
    run.run([], [start.name], {})
    for size in range(1, 6):
        values = run.run([found.name], [], {"keys": np.full(size, 2)})
        assert values[found.name].tolist() == [20] * size
    run.close()


@pytest.mark.parametrize("is_in_loop", [False, True])
def test_a_kernel_that_counts_its_draws_keeps_the_programs(
    is_in_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new program would draw the same values once more."""
    monkeypatch.setattr(kept_programs, "_FEW_SHAPES", 1)
    monkeypatch.setattr(kept_programs, "_MOST_SHAPES", 2)
    graph = tf.Graph()
    with graph.as_default():
        values = v1.placeholder(tf.float32, [None], name="values")
        drawn = tf.random.gamma([], 1.0, seed=1)
        if is_in_loop:
            (drawn,) = tf.while_loop(
                lambda total: total < 1.0, lambda total: total + tf.random.uniform([]), [0.0]
            )
        total = drawn + tf.reduce_sum(values)
    run = replicated(graph, 1)
    found = [
        float(run.run([total.name], [], {"values": np.zeros(size, np.float32)})[total.name])
        for size in (1, 2, 3, 4, 1)
    ]
    assert found[0] != found[-1]
    run.close()


@pytest.mark.parametrize("number", [0, proof(1)])
def test_an_empty_batch_trains_to_what_tensorflow_makes_of_it(number: int) -> None:
    _, train, loss, _ = script()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both(number, [([loss], [], feed(0)), ([loss], [train], feed(ROWS))])


@pytest.mark.parametrize("number", [0, proof(1)])
def test_what_is_no_number_passes_through(number: int) -> None:
    _, train, loss, scores = script()
    values = feed(ROWS)
    values["images"][3, 2] = np.nan
    values["images"][5, 1] = np.inf
    both(number, [([loss, scores], [], values), ([loss], [train], values), ([scores], [], values)])


@pytest.mark.parametrize("number", [0, proof(1)])
def test_a_placeholder_with_a_default(number: int) -> None:
    _, train, loss, _ = script()
    whole = {**feed(ROWS, 1), "rate": np.array(0.5), "shift": np.ones([ROWS, 8])}
    row = {**feed(ROWS, 1), "shift": np.full([1, 8], 0.5)}
    both(number, [([loss], [train], values) for values in (whole, feed(ROWS), row)])


def test_a_placeholder_that_is_not_fed() -> None:
    run = executor(0, 2)
    with pytest.raises(FeedError, match="no value for 'labels'"):
        run.run([script()[2]], [], {"images": feed(ROWS)["images"]})
    run.close()
