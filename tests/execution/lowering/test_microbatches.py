"""A step of several microbatches is the step of the whole batch on one device.

The scripts have what a step can have beside a mean: weights that are summed first, weight decay,
clipping by the global norm, schedules, dropout, looked-up tables with sparse gradients, a scaled
loss, two losses of one step, and fetches of examples and of what no microbatch can make.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.cost.peak.program_peak import program_peak
from tensoropt.errors import GraphError
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.dry_run import ScriptStep, dry_run
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of
from tensoropt.planner.prices.reshard_steps import ReshardSteps
from tests.oracles.equality import (
    Script,
    Trained,
    choices_of,
    draw,
    executor_of,
    planned_of,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.oracles.equality.scripts import SCRIPTS, mlp
from tests.proofs import proof

tensoropt.enable_graph_mode()

v1 = tf.compat.v1
BATCH, LENGTH, WIDTH, WORDS = 16, 6, 8, 12
BARS = {"float32": 1e-5, "float64": 1e-10}


def language(dtype: tf.DType) -> Script:
    """Next words by two tables, weighted by a mask: all that is special about a loss at once."""
    graph = tf.Graph()
    with graph.as_default():
        tokens = v1.placeholder(tf.int32, [None, LENGTH], name="tokens")
        keep = v1.placeholder(dtype, [], name="keep")
        make = functools.partial(v1.get_variable, dtype=dtype, use_resource=True)
        words = make("words", [WORDS, WIDTH], initializer=v1.random_normal_initializer(seed=1))
        places = make("places", [LENGTH, WIDTH], initializer=v1.random_normal_initializer(seed=2))
        first = make("first", [1, WIDTH], initializer=v1.random_normal_initializer(seed=3))
        values = tf.gather(words, tokens) + tf.gather(places, tf.range(LENGTH))
        values = tf.nn.dropout(values, rate=1 - keep, seed=4)
        state = tf.tile(first, [BATCH, 1])  # learned, and cut along its examples
        state += tf.zeros([BATCH, WIDTH], dtype)
        mix = make("mix", [WIDTH, WIDTH], initializer=v1.glorot_uniform_initializer(seed=5))
        for place in range(LENGTH):
            state = tf.tanh(tf.matmul(state, mix) + values[:, place])
        out = v1.get_variable(
            "out", [WIDTH, WORDS], dtype, v1.glorot_uniform_initializer(seed=6), use_resource=False
        )
        scores = tf.matmul(state, out)
        labels = tokens[:, 0]
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        weights = tf.cast(tf.not_equal(labels, 0), dtype)
        loss = tf.reduce_sum(each * weights) / tf.reduce_sum(weights)
        # Of no reference: such a variable is read before its update, or after.
        loss += 0.01 * tf.add_n([tf.nn.l2_loss(mix), tf.nn.l2_loss(first)])
        tf.reduce_max(each, name="hardest")
        tf.reduce_sum(tf.one_hot(labels, WORDS, dtype=dtype), 0, name="counts")
        step = v1.train.create_global_step()
        rate = v1.train.exponential_decay(tf.constant(0.5, dtype), step, 1, 0.7)
        optimizer = v1.train.MomentumOptimizer(rate, 0.9)
        scale = tf.constant(8.0, dtype)
        pairs = optimizer.compute_gradients(loss, grad_loss=scale)
        clipped, norm = v1.clip_by_global_norm([gradient for gradient, _ in pairs], 4.0)
        tf.identity(norm, name="norm")
        pairs = [(gradient, pair[1]) for gradient, pair in zip(clipped, pairs, strict=True)]
        train = optimizer.apply_gradients(pairs, step)
        tf.identity(scores, name="scores")
    random = np.random.default_rng(0)
    feeds = tuple(
        {
            "tokens": random.integers(WORDS, size=(BATCH, LENGTH)).astype(np.int32),
            "keep": np.asarray(0.8, dtype.as_numpy_dtype),
        }
        for _ in range(2)
    )
    return Script(graph, train.name, loss.name, feeds)


def two_losses(dtype: tf.DType) -> Script:
    """Two calls of ``tf.gradients``, each by variables of its own, in one step."""
    graph = tf.Graph()
    with graph.as_default():
        images = v1.placeholder(dtype, [None, WIDTH], name="images")
        made: list[Any] = []
        for name, width in (("make", WIDTH), ("judge", 1)):
            glorot = v1.glorot_uniform_initializer(seed=len(made))
            made.append(v1.get_variable(name, [WIDTH, width], dtype, glorot))
        fake = tf.tanh(tf.matmul(images, made[0]))
        judged = tf.matmul(fake, made[1])
        fooled = tf.reduce_mean(tf.nn.softplus(-judged))
        real = tf.nn.softplus(-tf.matmul(images, made[1]))
        found = tf.reduce_mean(tf.nn.softplus(judged) + real)
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        parts = zip((fooled, found), made, strict=True)
        pairs = [optimizer.compute_gradients(y, [x])[0] for y, x in parts]
        train = optimizer.apply_gradients(pairs)
    random = np.random.default_rng(0)
    feeds = tuple(
        {"images": random.normal(size=(BATCH, WIDTH)).astype(dtype.as_numpy_dtype)}
        for _ in range(2)
    )
    return Script(graph, train.name, found.name, feeds)


BUILT: dict[str, Callable[[tf.DType], Script]] = {
    "language": language,
    "two_losses": two_losses,
    "mlp_dropout": functools.partial(SCRIPTS["mlp_dropout"], steps=2),
    "transformer_dropout": functools.partial(SCRIPTS["transformer_dropout"], steps=2),
    "vgg16": functools.partial(SCRIPTS["vgg16"], steps=2),
}


@functools.cache
def built(name: str, dtype: str) -> tuple[Script, Trained]:
    script = BUILT[name](tf.as_dtype(dtype))
    return script, train_plain(script)


def batch_of(script: Script) -> frozenset[str]:
    return frozenset(name for name, value in script.feeds[0].items() if value.ndim)


@pytest.mark.parametrize(
    ("name", "dtype", "devices", "microbatches"),
    [
        ("language", "float64", 1, 2),
        ("language", "float64", 2, 4),
        ("two_losses", "float64", 2, 4),
        ("mlp_dropout", "float32", 4, 2),
        ("vgg16", "float32", 2, 2),
        proof("language", "float32", 2, 2),
        proof("transformer_dropout", "float64", 2, 2),
        proof("vgg16", "float32", 2, 4),
    ],
)
def test_training_equals_one_device(name: str, dtype: str, devices: int, microbatches: int) -> None:
    script, truth = built(name, dtype)
    mesh, batch = Mesh.of(devices), batch_of(script)
    choices = choices_of(script, mesh, batch)
    random = np.random.default_rng([devices, microbatches])
    numbers = draw(script.imported(), choices, mesh, random).numbers
    prices = random_prices(devices)
    found = train_parallel(script, mesh, numbers, prices, batch, microbatches=microbatches)
    assert worst_error(found, truth) <= BARS[dtype]


FETCHED = ("scores:0", "hardest:0", "counts:0", "norm:0", "keep:0", "tokens:0")


def test_fetches_are_those_of_the_whole_batch() -> None:
    """Values of examples are put together; what mixes examples is computed of these."""
    script, _ = built("language", "float64")
    values = script.feeds[0]
    with v1.Session(graph=script.graph) as session:
        session.run(script.variables and [v.initializer for v in variables_of(script)])
        feeds = {f"{name}:0": value for name, value in values.items()}
        names = [script.loss, *FETCHED]
        truth = dict(zip(names, session.run([*names, script.train], feeds), strict=False))
    mesh, batch = Mesh.of(2), batch_of(script)
    choices = choices_of(script, mesh, batch)
    numbers = draw(script.imported(), choices, mesh, np.random.default_rng(7)).numbers
    planned = planned_of(script, mesh, numbers, batch)
    executor = executor_of(script.graph, mesh, planned, random_prices(1), batch, microbatches=4)
    found = executor.run(names, [script.train], values)
    for name in names:
        np.testing.assert_allclose(found[name], truth[name], rtol=1e-10, err_msg=name)
    executor.close()


def variables_of(script: Script) -> list[Any]:
    with script.graph.as_default():
        return v1.global_variables()


def data_parallel(script: Script) -> dict[str, Configuration]:
    """Every operator that has examples first, split by them over one axis."""
    planned = {}
    for operator in script.imported():
        derivation = derivation_of(operator)
        first = [n for n, index in enumerate(derivation.indices) if index.extent == 64 * BATCH]
        splits = tuple((0,) if n in first[:1] else () for n in range(len(derivation.indices)))
        planned[operator.name] = Configuration(splits)
    return planned


def test_sums_over_devices_are_as_many_and_memory_is_that_of_a_part() -> None:
    script = mlp(tf.float32, 1, 64 * BATCH, (8, 64, 64, 64, 8))
    planned, mesh, batch = data_parallel(script), Mesh.of(2), batch_of(script)
    sums, peaks = [], []
    for microbatches in (1, 8):
        executor = executor_of(
            script.graph, mesh, planned, random_prices(1), batch, microbatches=microbatches
        )
        program = executor.program([], [script.train], script.shapes)
        sums.append([each.split(": ", 1)[1] for each in program.collectives])
        if microbatches > 1:
            with pytest.raises(GraphError, match="divides into microbatches"):
                executor.run([], [script.train], {n: v[:6] for n, v in script.feeds[0].items()})
        executor.close()
        step = ScriptStep(
            script.graph,
            [script.train],
            script.shapes,
            StepOptions(batch, 1),
            microbatches=microbatches,
        )
        peaks.append(
            program_peak(dry_run(step, mesh, planned, ReshardSteps(mesh, random_prices(1))))
        )
    assert sums[0] == sums[1]
    assert any("float32" in each for each in sums[0])
    whole, part = (peak.bytes - peak.resident_bytes for peak in peaks)
    assert part < whole / 3


def test_a_run_that_is_fed_no_batch_is_computed_at_once() -> None:
    graph = tf.Graph()
    with graph.as_default():
        weights = v1.get_variable("weights", [4], initializer=v1.ones_initializer())
        train = v1.train.GradientDescentOptimizer(0.5).minimize(tf.nn.l2_loss(weights))
    executor = executor_of(
        graph, Mesh(()), {}, random_prices(1), frozenset({"elsewhere"}), microbatches=4
    )
    executor.run([], [train.name], {})
    np.testing.assert_array_equal(
        executor.variables.values()["weights"], np.full(4, 0.5, np.float32)
    )
    executor.close()
