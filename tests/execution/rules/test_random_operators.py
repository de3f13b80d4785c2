"""Random operators under random splits: the draws are plain TensorFlow's, bit for bit."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.execution.rules import random as rule
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.parallel.choices.choices import configurations_of, strategy_choices
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl.ops.random import DRAWN, STATEFUL
from tests.oracles.equality import draw, executor_of, random_prices
from tests.proofs import proof

v1, raw = tf.compat.v1, tf.raw_ops
REAL = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
WHOLE = (tf.int32, tf.int64)
SHAPES = ([12, 10], [2, 3, 24])
KEY = np.array([7], np.int32)
ODD = [5, 12]  # rows that begin inside a kernel's group

tensoropt.enable_graph_mode()


def drawn_by(
    op_type: str, dtype: tf.DType, shape: list[int], number: int, key: tf.Tensor
) -> tf.Tensor:
    """The operator, with seeds or a counter that depend on ``number``.

    The key is fed: the importer folds what stateless operators draw from constants.
    """
    named: dict[str, Any] = {"shape": shape}
    if op_type in STATEFUL:
        named |= {"seed": 3 + number, "seed2": 40 - number}
    elif op_type.endswith("V2"):
        counter = np.array([2**64 - 3, number], np.uint64)  # a few blocks on, it carries
        named |= {"key": tf.cast(key, tf.uint64), "counter": counter, "alg": 1}
    else:
        named |= {"seed": tf.concat([key, [number]], 0)}
    if op_type.removesuffix("V2").endswith("UniformInt"):
        named |= {"minval": tf.constant(-5, dtype), "maxval": tf.constant(1000, dtype)}
    else:
        named["dtype"] = dtype
    found: tf.Tensor = getattr(raw, op_type)(**named)
    return found


@functools.cache
def kernels() -> tuple[tf.Graph, tuple[str, ...]]:
    """Every type at every dtype and shape."""
    graph, names = tf.Graph(), []
    with graph.as_default():
        key = v1.placeholder(tf.int32, [1], "key")
        for op_type in DRAWN:
            for dtype in WHOLE if "Int" in op_type else REAL:
                for shape in (*SHAPES, ODD):
                    names.append(drawn_by(op_type, dtype, shape, len(names), key).name)
    return graph, tuple(names)


@functools.cache
def plain_kernels() -> list[list[Any]]:
    graph, names = kernels()
    with v1.Session(graph=graph) as session:
        return [session.run(list(names), {"key:0": KEY}) for _ in range(3)]


@pytest.mark.parametrize(("devices", "small"), [(2, 8), proof(6, None)])
def test_every_kernel_draws_its_piece(
    devices: int, small: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three runs of a session. With ``small`` rows are drawn block by block."""
    if small is not None:
        monkeypatch.setattr(rule, "_SMALL", small)
    graph, names = kernels()
    mesh = Mesh.of(devices)
    logical = import_graph(graph, [name.removesuffix(":0") for name in names])
    choices = strategy_choices(logical, mesh)
    numbers = draw(logical, choices, mesh, np.random.default_rng(devices)).numbers
    planned = configurations_of(choices, numbers)
    split = {logical[name].type for name, chosen in planned.items() if any(chosen.splits)}
    assert split == set(DRAWN)
    executor = executor_of(graph, mesh, planned, random_prices(devices))
    for truth in plain_kernels():
        found = executor.run(list(names), [], {"key": KEY})
        for name, right in zip(names, truth, strict=True):
            np.testing.assert_array_equal(found[name], right, err_msg=name)
    executor.close()


def mask_script(seed: int | None) -> tf.Graph:
    graph = tf.Graph()
    with graph.as_default():
        a = tf.identity(tf.random.uniform([8, 6], seed=seed), "a")
        b = tf.random.normal([8, 6], seed=None if seed is None else seed + 1, name="b")
        tf.add(a, b, "sum")
        count = v1.placeholder(tf.int32, [], "count")
        tf.identity(tf.random.uniform(tf.stack([count, 3]), seed=seed), "counted")
    return graph


RUNS = (["a:0"], ["sum:0"], ["b:0", "a:0"], ["sum:0"], ["a:0"])


def planned_for(graph: tf.Graph, mesh: Mesh, seed: int) -> Mapping[str, Configuration]:
    logical = import_graph(graph, ["sum"])
    choices = strategy_choices(logical, mesh)
    numbers = draw(logical, choices, mesh, np.random.default_rng(seed)).numbers
    return configurations_of(choices, numbers)


@pytest.mark.parametrize("devices", [1, 2, 6])
def test_programs_of_a_session_share_an_operators_state(devices: int) -> None:
    graph = mask_script(5)
    mesh = Mesh.of(devices)
    executor = executor_of(graph, mesh, planned_for(graph, mesh, 1), random_prices(0))
    with v1.Session(graph=graph) as session:
        for tensors in RUNS:
            found = executor.run(tensors, [], {})
            truth = dict(zip(tensors, session.run(tensors), strict=True))
            for name in tensors:
                np.testing.assert_array_equal(found[name], truth[name])


def test_a_shape_that_only_the_run_tells_moves_the_state_by_its_own_size() -> None:
    graph = mask_script(5)
    executor = executor_of(graph, Mesh.of(2), {}, random_prices(0))
    with v1.Session(graph=graph) as session:
        for rows in (3, 10, 1, 3):
            found = executor.run(["counted:0"], [], {"count": np.int32(rows)})
            truth = session.run("counted:0", {"count:0": rows})
            np.testing.assert_array_equal(found["counted:0"], truth)


def test_unseeded_draws_follow_the_job_not_the_strategy() -> None:
    graph = mask_script(None)
    rows = []
    for devices, seed in ((1, 0), (4, 1), (4, 2), (6, 3)):
        mesh = Mesh.of(devices)
        executor = executor_of(graph, mesh, planned_for(graph, mesh, seed), random_prices(0))
        rows.append([executor.run(tensors, [], {})[tensors[0]] for tensors in RUNS])
    for row in rows[1:]:
        for value, first in zip(row, rows[0], strict=True):
            np.testing.assert_array_equal(value, first)
    values = [rows[0][0], rows[0][2], rows[0][4]]
    assert len({value.tobytes() for value in values}) == len(values)


def test_gradients_by_what_was_drawn_and_by_a_large_constant() -> None:
    """A large constant is made in the pieces that are read, but where it is differentiated by."""
    graph = tf.Graph()
    with graph.as_default():
        drawn = tf.random.normal([12, 8], seed=3)
        known = tf.constant(np.arange(96.0 * 96).reshape(96, 96) / 1e4, tf.float32)
        other = tf.constant(np.arange(96.0 * 96).reshape(96, 96) / 1e5, tf.float32)
        product = tf.matmul(tf.reshape(drawn, [1, 96]), known * drawn[0, 0] + other)
        loss = tf.reduce_sum(tf.square(product))
        found = tensoropt.gradients(loss, [drawn, known])
        names = [gradient.name for gradient in found]
    logical = import_graph(graph, [gradient.op.name for gradient in found])
    with v1.Session(graph=graph) as session:
        truth = [session.run(names) for _ in range(2)]
    for number in range(2):
        mesh = Mesh.of(4)
        choices = strategy_choices(logical, mesh)
        numbers = draw(logical, choices, mesh, np.random.default_rng(number)).numbers
        planned = configurations_of(choices, numbers)
        executor = executor_of(graph, mesh, planned, random_prices(number))
        for rights in truth:
            values = executor.run(names, [], {})
            for name, right in zip(names, rights, strict=True):
                np.testing.assert_allclose(values[name], right, rtol=1e-4, atol=1e-4)
