"""The tensors to keep for the backward pass are drawn at random: training equals one device's, and
memory does not hold the others."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.cost.peak.estimated_peak import peak_memory
from tensoropt.frontend.measuring.step_meter import Meter
from tensoropt.graph.from_tensorflow import backward_reads
from tensoropt.parallel.choices.choices import configurations_of
from tensoropt.parallel.configuration import KEPT, Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tests.oracles.equality import (
    Script,
    Trained,
    executor_of,
    mlp,
    model_script,
    random_prices,
    train_plain,
    worst_error,
)
from tests.oracles.equality.engine import choices_of
from tests.proofs import proof

v1 = tf.compat.v1
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}

tensoropt.enable_graph_mode()


@functools.cache
def script_of(model: str, dtype: str) -> Script:
    if model == "mlp":
        return mlp(tf.as_dtype(dtype), steps=4, dropout=0.25)
    return model_script(model, tf.as_dtype(dtype), 2)


@functools.cache
def truth_of(model: str, dtype: str) -> Trained:
    return train_plain(script_of(model, dtype))


def random_configurations(
    script: Script, mesh: Mesh, random: np.random.Generator
) -> dict[str, Configuration]:
    """Splits as in every random strategy, and of each operator's outputs any copies kept."""
    choices = choices_of(script, mesh, frozenset(script.feeds[0]))
    numbers = [int(random.integers(len(group.options))) for group in choices]
    return {
        name: replace(configuration, kept=str(random.choice(KEPT)))
        for name, configuration in configurations_of(choices, numbers).items()
    }


def trained(
    script: Script,
    mesh: Mesh,
    planned: dict[str, Configuration],
    seed: int,
    microbatches: int = 1,
) -> Trained:
    batched = frozenset(script.feeds[0])
    prices = random_prices(seed)
    executor = executor_of(script.graph, mesh, planned, prices, batched, microbatches=microbatches)
    losses = [executor.run([script.loss], [script.train], v)[script.loss] for v in script.feeds]
    variables = executor.run(script.variables, [], {})
    executor.close()
    return Trained(np.array(losses), variables)


@pytest.mark.parametrize(
    ("devices", "dtype"), [(1, "float64"), (4, "float32"), proof(6, "float64")]
)
def test_training_equals_one_device_whatever_is_kept(devices: int, dtype: str) -> None:
    script, mesh = script_of("mlp", dtype), Mesh.of(devices)
    random = np.random.default_rng(devices)
    for number in range(2):
        planned = random_configurations(script, mesh, random)
        found = trained(script, mesh, planned, number, 1 + number)
        assert worst_error(found, truth_of("mlp", dtype)) <= TOLERANCE[dtype]


@pytest.mark.parametrize("model", ["vgg16", proof("transformer")])
def test_a_model_trains_alike_whatever_is_kept(model: str) -> None:
    script, mesh = script_of(model, "float64"), Mesh.of(2)
    planned = random_configurations(script, mesh, np.random.default_rng(1))
    found = trained(script, mesh, planned, 0)
    assert worst_error(found, truth_of(model, "float64")) <= 1e-10


def looked_up(lookups: int) -> Script:
    """Rows of a resource variable, one or several times; alone, a lookup reads no copy of it."""
    graph = tf.Graph()
    with graph.as_default():
        tokens = v1.placeholder(tf.int32, [None, 8], name="tokens")
        initializer = v1.glorot_uniform_initializer(seed=1)
        table = v1.get_variable("table", [16, 16], tf.float64, initializer, use_resource=True)
        rows = [tf.gather(table, tokens, axis=0, name=f"lookup{n}") for n in range(lookups)]
        losses = [tf.reduce_mean(tf.square(each) * (n + 1)) for n, each in enumerate(rows)]
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(sum(losses))
        loss = tf.add_n(losses, name="loss")
    numbers = np.random.default_rng(0).integers(16, size=(8, 8)).astype(np.int32)
    return Script(graph, train.name, loss.name, ({"tokens": numbers},) * 2)


@pytest.mark.parametrize("splits", [((1,), (), (), ()), ((), (1,), (0,), ()), ((0,), (), (), (1,))])
@pytest.mark.parametrize("lookups", [1, 2])
def test_rows_looked_up_under_numbers_that_are_resharded_again_have_their_gradient(
    lookups: int, splits: tuple[tuple[int, ...], ...]
) -> None:
    script, mesh = looked_up(lookups), Mesh.of(4)
    planned = {f"lookup{n}": Configuration(splits) for n in range(lookups)}
    planned["tokens"] = Configuration(((0, 1), ()), "before")
    executor = executor_of(script.graph, mesh, planned, random_prices(0), frozenset({"tokens"}))
    losses = [executor.run([script.loss], [script.train], v)[script.loss] for v in script.feeds]
    found = Trained(np.array(losses), executor.run(script.variables, [], {}))
    executor.close()
    assert worst_error(found, train_plain(script)) <= 1e-12


def gated(batch: int = 1024, width: int = 256, layers: int = 4) -> Script:
    """Layers of z·sigmoid(z): the backward pass reads z, the sigmoid and the product."""
    random = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default():
        values = v1.placeholder(tf.float32, [None, width], name="images")
        for layer in range(layers):
            weights = v1.get_variable(
                f"weights{layer}",
                [width, width],
                tf.float32,
                v1.glorot_uniform_initializer(seed=layer),
            )
            summed = tf.matmul(values, weights, name=f"sum{layer}")
            gate = tf.sigmoid(summed, name=f"gate{layer}")
            values = tf.multiply(summed, gate, name=f"product{layer}")
        loss = tf.reduce_mean(tf.square(values), name="loss")
        train = tensoropt.train.MomentumOptimizer(1e-3, 0.9).minimize(loss)
    images = random.random((batch, width)).astype(np.float32)
    return Script(graph, train.name, loss.name, ({"images": images},) * 3)


def peaks(script: Script, recomputed: Sequence[str]) -> tuple[int, int, Trained]:
    """The predicted and the measured peak of a step on one device, and what training left."""
    mesh = Mesh(())
    planned = {name: Configuration(((), ()), "recomputed") for name in recomputed}
    executor = executor_of(script.graph, mesh, planned, random_prices(0), frozenset({"images"}))
    losses, measured = [], []
    for values in script.feeds:
        with Meter(executor.world) as meter:
            losses.append(executor.run([script.loss], [script.train], values)[script.loss])
        measured.append(meter.peak_bytes())
    last = measured[-1]
    assert last is not None
    variables = executor.run(script.variables, [], {})
    executor.close()
    graph = script.imported()
    strategy = Strategy(graph, mesh, planned, frozenset({"images"}))
    predicted = peak_memory(strategy, backward_reads(script.graph, graph)).bytes
    return predicted, last, Trained(np.array(losses), variables)


def test_what_is_recomputed_is_not_in_memory() -> None:
    script = gated()
    layers = range(4)
    gates = [f"gate{layer}" for layer in layers]
    products = [f"product{layer}" for layer in layers]
    found = [peaks(script, names) for names in ([], gates, [*gates, *products])]
    truth = train_plain(script)
    for predicted, measured, result in found:
        assert measured == pytest.approx(
            predicted, rel=0.35
        )  # what runs at once is for the scheduler to say
        assert worst_error(result, truth) <= 1e-6
    piece = 1024 * 256 * 4
    for before, after in ((found[0], found[1]), (found[1], found[2])):
        assert after[0] <= before[0] - piece
        assert after[1] <= before[1] - piece


def test_a_gradient_that_is_differentiated_again_keeps_everything() -> None:
    graph = tf.Graph()
    with graph.as_default():
        values = v1.placeholder(tf.float64, [None, 8], name="images")
        weights = v1.get_variable("weights", [8, 8], tf.float64, v1.ones_initializer())
        product = tf.tanh(tf.matmul(values, weights), name="activation")
        (first,) = tensoropt.gradients(product, values)
        loss = tf.reduce_sum(tf.square(first), name="loss")
        train = tensoropt.train.GradientDescentOptimizer(1e-3).minimize(loss)
    images = np.random.default_rng(0).random((8, 8)) / 8
    script = Script(graph, train.name, loss.name, ({"images": images},) * 3)
    planned = {"activation": Configuration(((), ()), "recomputed")}
    found = trained(script, Mesh.of(2), planned, 0)
    assert worst_error(found, train_plain(script)) <= 1e-12
