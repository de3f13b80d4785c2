"""Random pipelines of two to four stages are the step of the whole batch on one device."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from benchmarks.equality import Script, Trained, mlp, train_plain, worst_error
from benchmarks.equality.stages import draw_pipeline, staged_executor, train_pipeline
from tensoropt.errors import GraphError
from tensoropt.execution.checkpoint_slices import SavedTensor
from tensoropt.execution.draws import Draws

tensoropt.enable_graph_mode()

v1 = tf.compat.v1
BATCH, WIDTH, WORDS = 16, 8, 12


def tied() -> Script:
    """Words that the first and the last layer share, and what joins all gradients in a step.

    Other words, looked up; weights of examples that are summed first; weight decay; a rate that
    falls; clipping by the global norm; Adam, of whose variables no stage reads some.
    """
    graph = tf.Graph()
    with graph.as_default():
        tokens = v1.placeholder(tf.int32, [None, 2], name="tokens")
        make = functools.partial(v1.get_variable, dtype=tf.float64, use_resource=True)
        normal = v1.random_normal_initializer
        words = make("words", [WORDS, WIDTH], initializer=normal(seed=1))
        table = make("table", [WORDS, WIDTH], initializer=normal(seed=2))
        values = tf.matmul(tf.one_hot(tokens[:, 0], WORDS, dtype=tf.float64), words)
        values += tf.gather(table, tokens[:, 1])
        decayed = []
        for layer in range(3):
            weights = make(f"weights{layer}", [WIDTH, WIDTH], initializer=normal(seed=3 + layer))
            values = tf.nn.dropout(tf.tanh(tf.matmul(values, weights)), rate=0.2, seed=layer)
            decayed.append(tf.nn.l2_loss(weights))
        scores = tf.matmul(values, words, transpose_b=True, name="scores")
        labels = tokens[:, 0]
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        counted = tf.cast(tf.not_equal(labels, 0), tf.float64)
        loss = tf.reduce_sum(each * counted) / tf.reduce_sum(counted) + 0.01 * tf.add_n(decayed)
        step = v1.train.create_global_step()
        rate = v1.train.exponential_decay(tf.constant(0.05, tf.float64), step, 1, 0.7)
        optimizer = v1.train.AdamOptimizer(rate)
        pairs = optimizer.compute_gradients(loss)
        clipped, _ = v1.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
        pairs = [(gradient, pair[1]) for gradient, pair in zip(clipped, pairs, strict=True)]
        train = optimizer.apply_gradients(pairs, step)
        tf.constant(3.0, name="fixed")
        optimizer.minimize(tf.add_n(decayed), name="decay")
    random = np.random.default_rng(0)
    feeds = tuple(
        {"tokens": random.integers(WORDS, size=(BATCH, 2)).astype(np.int32)} for _ in range(2)
    )
    return Script(graph, train.name, loss.name, feeds)


@functools.cache
def built(name: str) -> tuple[Script, Trained]:
    script = tied() if name == "tied" else mlp(tf.float64, 2, dropout=0.25)
    return script, train_plain(script)


@pytest.mark.parametrize("name", ["mlp", "tied"])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_pipelines(name: str, seed: int) -> None:
    script, truth = built(name)
    drawn = draw_pipeline(script, np.random.default_rng(seed))
    assert worst_error(train_pipeline(script, drawn), truth) <= 1e-10


def test_fetches_values_and_checkpoints_of_all_stages(tmp_path: Path) -> None:
    """What is fetched, and what another pipeline goes on with from a checkpoint."""
    script, _ = built("tied")
    first, second = script.feeds
    fetched = ["scores:0", "global_norm/global_norm:0", script.loss]
    with script.graph.as_default(), v1.Session(graph=script.graph) as session:
        session.run(v1.global_variables_initializer())
        fed, then = ({"tokens:0": values["tokens"]} for values in (first, second))
        truth = [session.run([fetched[0], "fixed:0"], fed)]
        truth.append(session.run([*fetched, script.train], fed)[:-1])
        saved = dict(zip(script.variables, session.run(script.variables), strict=True))
        truth.append(session.run([script.loss, script.train], then)[:-1])
        variables = v1.global_variables()
        named = {tensor: v.handle.op.name for tensor, v in zip(saved, variables, strict=True)}
    one, other = (
        staged_executor(script, draw_pipeline(script, np.random.default_rng(seed)))
        for seed in (1, 2)
    )
    draws = Draws()
    found = [list(one.run([fetched[0], "fixed:0"], [], first, draws).values())]
    found.append(list(one.run(fetched, [script.train], first, draws).values()))
    one.check_replicas()
    values = one.values()
    assert values.keys() == set(named.values())
    for tensor, name in named.items():
        np.testing.assert_allclose(values[name], saved[tensor], rtol=1e-10, atol=1e-12)
    tensors = [
        SavedTensor(f"saved/{name}", name, x.dtype.name, x.shape, x.shape, (0,) * x.ndim)
        for name, x in values.items()
    ]
    one.save(tensors, {}, str(tmp_path / "saved"))
    read = tf.train.load_checkpoint(str(tmp_path / "saved"))
    other.assign({name: np.ones_like(x) for name, x in values.items()})
    assert all(np.all(x == 1) for x in other.values().values())
    other.restore(tensors, str(tmp_path / "saved"))
    for name, x in other.values().items():
        np.testing.assert_array_equal(x, values[name])
        np.testing.assert_array_equal(x, read.get_tensor(f"saved/{name}"))
    found.append(list(other.run([script.loss], [script.train], second, draws).values()))
    for given, right in zip(found, truth, strict=True):
        for x, y in zip(given, right, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    with pytest.raises(GraphError, match="fed no batch"):
        one.run([], [script.graph.get_operation_by_name("decay").name], {})
