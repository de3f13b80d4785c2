"""Tables outside one optimizer's step: wrong rows, several gradients, scripts' scatters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.world.world import SingleProcessWorld
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices.choices import configurations_of, strategy_choices
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep, plan_reshard
from tensoropt.parallel.strategy import derivation_of
from tensoropt.tensor_spec import TensorSpec
from tests.oracles.equality import (
    Script,
    draw,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.proofs import proof

v1 = tf.compat.v1
MESH = Mesh.of(4)
FORMS = pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
Strategies = dict[str, Configuration]

tensoropt.enable_graph_mode()


def executor(graph: tf.Graph, planned: Strategies) -> Executor:
    price = random_prices(1)

    def plan_steps(
        shape: Sequence[int], dtype: str, source: Layout, target: Layout
    ) -> tuple[ReshardStep, ...]:
        itemsize = TensorSpec((), dtype).itemsize
        return plan_reshard(MESH, tuple(shape), itemsize, source, target, price)

    pipeline = Pipeline.of_mesh(SingleProcessWorld(MESH), planned, plan_steps)
    return Executor(graph, pipeline, StepOptions(frozenset(), 1), Agreement(None))


def drawn(graph: Graph, accepted: Callable[[Strategies], bool], seed: int = 0) -> Strategies:
    """The first random strategy that is accepted."""
    choices = strategy_choices(graph, MESH)
    random = np.random.default_rng(seed)
    for _ in range(1000):
        found = configurations_of(choices, draw(graph, choices, MESH, random).numbers)
        if accepted(found):
            return found
    raise AssertionError("no strategy is accepted")


def splits_rows(graph: Graph, name: str) -> Callable[[Strategies], bool]:
    row = derivation_of(graph[name]).index("row")
    return lambda chosen: bool(chosen[name].splits[row])


@pytest.mark.parametrize(
    ("resource", "wrong"), [(False, 8), (True, -1), proof(False, -1), proof(True, 8)]
)
def test_a_row_that_the_table_lacks_is_an_error(resource: bool, wrong: int) -> None:
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        ids = v1.placeholder(tf.int32, [4], name="ids")
        table = v1.get_variable("table", [8, 4], initializer=v1.ones_initializer())
        rows = tf.identity(tf.nn.embedding_lookup(table, ids), name="rows")
        changed = v1.scatter_add(table, ids, tf.ones([4, 4]))
        update = getattr(changed, "op", changed)
    imported = import_graph(graph, ["rows", update.name])
    gather = next(op.name for op in imported if op.type == "GatherV2")
    by_rows = drawn(
        imported,
        lambda chosen: (
            splits_rows(imported, gather)(chosen) and splits_rows(imported, update.name)(chosen)
        ),
    )
    for fetched in (([rows.name], []), ([], [update.name])):
        for values, fails in (([0, 3, 7, wrong], True), ([0, 3, 7, 5], False)):
            run = executor(graph, by_rows)
            feed = {"ids": np.array(values, np.int32)}
            if fails:
                with pytest.raises(tf.errors.InvalidArgumentError, match=f"= {wrong} is not in"):
                    run.run(*fetched, feed)
            else:
                found = run.run(*fetched, feed).get(rows.name, run.variables.values()["table"])
                assert found.sum() == (16 if fetched[0] else 48)
            run.close()


def test_one_table_with_a_sparse_and_a_dense_gradient() -> None:
    """Each call to tf.gradients has its own form, by the same lookup."""
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=True):
        ids = v1.placeholder(tf.int32, [8], name="ids")
        initializer = v1.random_normal_initializer(seed=1)
        table = v1.get_variable("table", [16, 4], tf.float64, initializer)
        first = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, ids)))
        second = first + tf.reduce_sum(tf.tanh(table))
        (sparse,) = tensoropt.gradients(first, [table])
        (dense,) = tensoropt.gradients(second, [table])
        assert isinstance(sparse, tf.IndexedSlices)
        assert not isinstance(dense, tf.IndexedSlices)
        steps = [
            v1.train.MomentumOptimizer(0.1, 0.9, name=name).apply_gradients([(gradient, table)])
            for name, gradient in (("sparse", sparse), ("dense", dense))
        ]
    fetches = [sparse.values.name, sparse.indices.name, dense.name]
    feed = {"ids": np.array([3, 3, 5, 0, 15, 9, 9, 9], np.int32)}
    with graph.as_default(), v1.Session() as session:
        session.run(v1.global_variables_initializer())
        expected = session.run(fetches, {"ids:0": feed["ids"]})
        for step in (0, 1, 0):
            session.run(steps[step], {"ids:0": feed["ids"]})
        trained = session.run(table)
    roots = [*(name.partition(":")[0] for name in fetches), *(step.name for step in steps)]
    imported = import_graph(graph, roots)
    gather = next(op.name for op in imported if op.type == "GatherV2")
    for seed, accepted in enumerate([splits_rows(imported, gather), lambda _: True]):
        run = executor(graph, drawn(imported, accepted, seed))
        found = run.run(fetches, [], feed)
        for name, value in zip(fetches, expected, strict=True):
            np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12)
        for step in (0, 1, 0):
            run.run([], [steps[step].name], feed)
        np.testing.assert_allclose(run.variables.values()["table"], trained, rtol=1e-12, atol=1e-12)
        run.close()


@FORMS
def test_lookups_of_which_only_a_run_says_how_many(resource: bool) -> None:
    """Each word is looked up once, as for a sparse bag of words; rows can still be split."""
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        words = v1.placeholder(tf.int32, [8], name="words")
        initializer = v1.random_normal_initializer(seed=1)
        table = v1.get_variable("table", [16, 4], tf.float64, initializer)
        different, places = tf.unique(words)
        each = tf.nn.embedding_lookup(tf.nn.embedding_lookup(table, different), places)
        loss = tf.reduce_mean(tf.square(each))
        step = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    random = np.random.default_rng(0)
    feeds = tuple({"words": random.integers(16, size=8).astype(np.int32)} for _ in range(3))
    script = Script(graph, step.name, loss.name, feeds)
    truth, imported = train_plain(script), script.imported()
    gather = next(op.name for op in imported if op.type == "GatherV2")
    choices = strategy_choices(imported, MESH, frozenset({"words"}))
    generator, by_rows = np.random.default_rng(0), 0
    for number in range(2):
        numbers = draw(imported, choices, MESH, generator).numbers
        by_rows += splits_rows(imported, gather)(configurations_of(choices, numbers))
        found = train_parallel(script, MESH, numbers, random_prices(number), frozenset({"words"}))
        assert worst_error(found, truth) <= 1e-12, numbers
    assert by_rows


SCATTERS = ("add", "sub", "mul", "div", "min", "max", "update")


@FORMS
def test_scatters_of_a_script_change_rows_where_they_are(resource: bool) -> None:
    """Row numbers have two dimensions or none; one scalar updates all rows."""
    graph = tf.Graph()
    many = tf.float64, [[1, 6], [0, 7]], np.arange(1.0, 17.0).reshape(2, 2, 4) / 7
    forms: list[tuple[Any, Any, Any]] = [many, (*many[:2], 1.5), (tf.float64, 5, [1.0, 0.5, 2, 3])]
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        changes = []
        for kind in SCATTERS:
            for number, (dtype, ids, updates) in enumerate(forms):
                initializer = v1.random_uniform_initializer(1, 2, seed=number)
                variable = v1.get_variable(f"{kind}{number}", [8, 4], dtype, initializer)
                change = getattr(v1, f"scatter_{kind}")(variable, ids, tf.constant(updates, dtype))
                changes.append(change)
        v1.group(*changes, name="all")
        variables = {f"{kind}{n}": n for kind in SCATTERS for n in range(len(forms))}
    with graph.as_default(), v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run("all")
        expected = session.run({v.op.name: v for v in v1.global_variables()})
    imported = import_graph(graph, ["all"])
    scatters = [op.name for op in imported if "Scatter" in op.type]
    assert len(scatters) == len(variables)
    chosen = drawn(imported, lambda _: True)
    assert sum(splits_rows(imported, name)(chosen) for name in scatters) > len(scatters) / 2
    run = executor(graph, chosen)
    run.run([], ["all"], {})
    for name, value in run.variables.values().items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-14, err_msg=name)
    run.close()


def test_tables_of_whole_numbers_and_of_truth_values() -> None:
    graph = tf.Graph()
    with graph.as_default():
        numbers = v1.get_variable("numbers", initializer=tf.reshape(tf.range(32), [8, 4]))
        truths = tf.cast(numbers % 2, tf.bool)
        ids = tf.constant([[7, 0], [3, 3]])
        tf.gather(numbers, ids, name="ints")
        tf.gather(truths, ids, name="bools")
    imported = import_graph(graph, ["ints", "bools"])
    assert not derivation_of(imported["bools"]).indices[-1].splittable
    run = executor(graph, drawn(imported, splits_rows(imported, "ints")))
    found = run.run(["ints:0", "bools:0"], [], {})
    table = np.arange(32).reshape(8, 4)
    np.testing.assert_array_equal(found["ints:0"], table[[[7, 0], [3, 3]]])
    np.testing.assert_array_equal(found["bools:0"], (table % 2 == 1)[[[7, 0], [3, 3]]])
    run.close()
