"""Random operators in sessions that plan by themselves: plain TensorFlow's draws, run by run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.frontend.job.job import current

pytestmark = pytest.mark.usefixtures("graph")
plain = tensorflow.compat.v1
BATCH = 8


def regression(seed: int | None = 3) -> tuple[Any, Any, Any, Any]:
    """Placeholder, mask, loss and training operator of a linear model with dropout."""
    x = tf.placeholder(tf.float32, [None, 8], name="x")
    initializer = tf.random_normal_initializer(seed=seed)
    weights = tf.get_variable("weights", [8, 4], initializer=initializer)
    scores = tf.nn.dropout(tf.matmul(x, weights), rate=0.5, seed=seed)
    mask = tf.cast(tf.not_equal(scores, 0.0), tf.float32)
    loss = tf.reduce_mean(tf.square(scores))
    return x, mask, loss, tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)


def batch(rows: int, step: int) -> Any:
    return np.random.default_rng(step).normal(size=(rows, 8)).astype(np.float32)


def runs(session: Any, script: tuple[Any, Any, Any, Any]) -> list[Any]:
    """Masks and losses before the first gradient and after it, of batches of several sizes."""
    x, mask, loss, train = script
    found = []
    for step, (rows, fetches) in enumerate(
        [(8, mask), (8, [loss, mask]), (8, [train, loss]), (4, mask), (8, [train, mask, loss])]
    ):
        values = session.run(fetches, {x: batch(rows, step)})
        found += [v for v in (values if isinstance(values, list) else [values]) if v is not None]
    return found


def test_runs_with_and_without_a_plan_go_on_with_one_state() -> None:
    script = regression()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = runs(session, script)
    assert current().plan is not None
    with plain.Graph().as_default(), plain.Session() as session:
        script = regression()
        session.run(plain.global_variables_initializer())
        truth = runs(session, script)
    assert len(found) == len(truth) == 7
    for value, right in zip(found, truth, strict=True):
        np.testing.assert_allclose(value, right, rtol=1e-5)


def test_a_seeded_operator_starts_again_in_a_new_session_and_an_unseeded_one_goes_on() -> None:
    seeded = tf.identity(tf.random_uniform([4, 4], seed=1))
    unseeded = tf.identity(tf.random_uniform([4, 4]))
    rows = []
    for _ in range(2):
        with tf.Session() as session:
            rows.append([session.run([seeded, unseeded]) for _ in range(2)])
    np.testing.assert_array_equal([run[0] for run in rows[0]], [run[0] for run in rows[1]])
    masks = [run[1].tobytes() for row in rows for run in row]
    assert len(set(masks)) == len(masks)


def test_initial_values_that_ran_by_themselves_do_not_count() -> None:
    """A run that needs a variable gives it its value; the script's own initializer draws alike."""
    regression()
    weights = tf.global_variables()[0]
    with tf.Session() as session:
        first = session.run(weights)
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(weights), first)
