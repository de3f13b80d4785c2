"""Graphs that cuts make list operators in topological order, whatever gradients are sparse."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import tensoropt as tf
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.errors import GraphError
from tensoropt.frontend.inputs.shapes import fed_shapes, training_roots
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.ordering import in_order
from tensoropt.pipeline.atom_costs import AtomCosts
from tensoropt.pipeline.atomic import atomic_components
from tensoropt.pipeline.split.sample import Sample
from tensoropt.tensor_spec import TensorSpec
from tensoropt.transformations.microbatches.accumulated import accumulated
from tensoropt.transformations.microbatches.cut import cut_along_batch
from tensoropt.transformations.staged.assignment import assign_forward
from tensoropt.transformations.staged.staged import staged

TABLES, ROWS, WIDTH, BATCH = 12, 10, 4, 8


def _table(name: str) -> Any:
    return tf.get_variable(name, [ROWS, WIDTH])


def _words(name: str) -> Any:
    return tf.placeholder(tf.int32, [None], name=name)


def _many_tables(optimizers: list[Any]) -> None:
    """A table for each input, as of recommendation models."""
    found = [tf.gather(_table(f"table{n}"), _words(f"words{n}")) for n in range(TABLES)]
    hidden = tf.matmul(tf.concat(found, 1), tf.get_variable("hidden", [TABLES * WIDTH, WIDTH]))
    optimizers[0].minimize(tf.reduce_mean(tf.square(hidden)))


def _a_table_looked_up_twice(optimizers: list[Any]) -> None:
    table = _table("table")
    found = [tf.gather(table, _words(f"words{n}")) for n in range(2)]
    for n in range(6):
        weights = tf.get_variable(f"weights{n}", [WIDTH, WIDTH])
        found = [tf.tanh(tf.matmul(each, weights)) for each in found]
    optimizers[0].minimize(tf.reduce_mean(found[0] * found[1]))


def _a_table_that_is_the_last_layer_too(optimizers: list[Any]) -> None:
    table, words = _table("table"), _words("words")
    values = tf.gather(table, words)
    for n in range(6):
        values = tf.tanh(tf.matmul(values, tf.get_variable(f"weights{n}", [WIDTH, WIDTH])))
    scores = tf.matmul(values, table, transpose_b=True)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=words, logits=scores)
    optimizers[0].minimize(tf.reduce_mean(each))


def _an_optimizer_for_tables_and_one_for_the_rest(optimizers: list[Any]) -> None:
    tables = [_table(f"table{n}") for n in range(TABLES)]
    values = sum(tf.gather(table, _words(f"words{n}")) for n, table in enumerate(tables))
    weights = [tf.get_variable(f"weights{n}", [WIDTH, WIDTH]) for n in range(6)]
    for each in weights:
        values = tf.tanh(tf.matmul(values, each))
    loss = tf.reduce_mean(tf.square(values))
    optimizers[0].minimize(loss, var_list=tables)
    optimizers[1].minimize(loss, var_list=weights)


def _step(
    build: Callable[[list[Any]], None], optimizers: list[Any]
) -> tuple[Graph, frozenset[str]]:
    script = tf.Graph()
    with script.as_default():
        build(optimizers)
        fed, batched = fed_shapes(script, BATCH, None)
        graph = import_graph(script, training_roots(script, None), fed)
    return graph, batched & {operator.name for operator in graph}


def _check_order(graph: Graph) -> None:
    """Every operator comes after those that it reads and waits for, as far as they are there."""
    seen: set[str] = set()
    for operator in graph:
        assert {name for name in operator.predecessors if name in graph} <= seen, operator.name
        seen.add(operator.name)


@pytest.mark.parametrize(
    ("optimizer", "resource"), [("AdamOptimizer", False), ("AdagradOptimizer", True)]
)
@pytest.mark.parametrize(
    "build",
    [
        _many_tables,
        _a_table_looked_up_twice,
        _a_table_that_is_the_last_layer_too,
        _an_optimizer_for_tables_and_one_for_the_rest,
    ],
)
def test_operators_come_after_those_that_they_need(
    build: Callable[[list[Any]], None], optimizer: str, resource: bool
) -> None:
    def made(optimizers: list[Any]) -> None:
        with tf.variable_scope("model", use_resource=resource):
            build(optimizers)

    optimizers = [getattr(tf.train, optimizer)(0.1), tf.train.MomentumOptimizer(0.1, 0.9)]
    graph, batched = _step(made, optimizers)
    cluster = load_cluster("8-v100")
    cost = ClusterCostModel(cluster, cluster.mesh(2), "execution")
    atoms = atomic_components(graph, batched)
    sample = Sample.of(AtomCosts(atoms, batched, BackwardReads(), cost), BackwardReads())
    _check_order(sample.graph)
    _check_order(sample.at(BATCH // 2))
    cut = cut_along_batch(graph, batched, 2)
    roots = [operator.name for operator in graph if operator.mutates]
    _check_order(accumulated(cut, roots))
    found = 0
    names = [atom.operator for atom in atoms.atoms]
    for schedule in ("1f1b", "gpipe", "side_by_side"):
        for stages in (2, 3):
            planned = {name: n * stages // len(names) for n, name in enumerate(names)}
            passes = assign_forward(cut, planned, stages - 1)
            # A table with a sparse gradient may be looked up in one stage alone.
            with contextlib.suppress(GraphError):
                step = staged(cut, passes, roots, schedule)
                for each in (step.graph, *map(step.of_stage, range(stages))):
                    _check_order(each)
                found += 1
    assert found


def test_an_order_is_found_unless_operators_need_each_other() -> None:
    def operator(name: str, *read: str, after: tuple[str, ...] = ()) -> Operator:
        specs = (TensorSpec((), "float32"),) * len(read)
        inputs = tuple(TensorName(each, 0) for each in read)
        return Operator(name, "AddN", inputs, specs, (TensorSpec((), "float32"),), {}, after)

    listed = [operator("c", "b"), operator("a"), operator("b", "a"), operator("d", after=("c",))]
    found = in_order({each.name: each for each in listed})
    assert found is not None
    assert list(found.operators) == ["a", "b", "c", "d"]
    listed[1] = operator("a", after=("c",))
    assert in_order({each.name: each for each in listed}) is None
