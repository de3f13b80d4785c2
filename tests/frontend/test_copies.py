"""Training outside of a plan is an error where several ranks would train copies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.errors import OptionError, StateError
from tensoropt.frontend.job import copies

plain = tensorflow.compat.v1
FEATURES, TARGETS = np.ones((4, 4), np.float32), np.zeros(4, np.float32)

Regression = tuple[Any, Any, Any, Any]
Fails = Callable[[type[Exception], str, str, str, Callable[[], Any]], None]


@pytest.fixture(autouse=True)
def _ranks() -> Iterator[None]:
    tf.init()
    copies.install(2)
    yield
    copies.remove()


def test_a_plain_session_computes_but_does_not_train(
    regression: Regression, fails: Fails, tmp_path: Path
) -> None:
    features, targets, loss, train = regression
    feeds = {features: FEATURES, targets: TARGETS}
    saver = plain.train.Saver()
    with plain.Session() as session:
        session.run(plain.global_variables_initializer())
        saver.restore(session, saver.save(session, str(tmp_path / "model")))
        value = session.run(loss, feeds)
        for call in (
            lambda: session.run([loss, train], feeds),
            lambda: train.run(feeds),
            lambda: session.make_callable(train),
        ):
            fails(StateError, "a session of TensorOpt's", "2 ranks", "ALLOW_COPIES=1", call)
        assert session.run(loss, feeds) == value


def test_an_update_by_a_gradient_trains_without_an_optimizer(regression: Regression) -> None:
    features, targets, loss, _ = regression
    (weights,) = plain.trainable_variables()
    update = weights.assign(weights - tf.gradients(loss, [weights])[0])
    with plain.Session() as session:
        session.run(plain.global_variables_initializer())
        with pytest.raises(StateError, match="would train a copy"):
            session.run(update, {features: FEATURES, targets: TARGETS})


def test_eager_updates_are_refused_and_derivatives_are_not(python: Callable[..., Any]) -> None:
    finished = python(Path(__file__).with_name("eager_copies_program.py"))
    assert finished.returncode == 0, finished.stderr
    refused = json.loads(finished.stdout.splitlines()[-1])
    got = {
        "keras": "Adam.apply, of 'dense",
        "keras_pairs": "SGD.apply, of 'dense",
        "keras_fit": "RMSprop.apply, of 'dense",
        "tf_keras": "Ftrl.apply_gradients, of 'w:0',",
        "tf_keras_legacy": "SGD.apply_gradients, of 'w:0',",
        "tensorflow_1": "MomentumOptimizer.apply_gradients, of 'w:0',",
        "assign_sub": "assign_sub of 'w:0', which a tape has differentiated by,",
        "scatter_sub": "scatter_sub of 'w:0', which a tape has differentiated by,",
        "in_a_function": "assign of 'w:0', by its gradient,",
        "again_and_again": "assign of 'w:0' after each gradient by it,",
        "kernel": "the optimizer's kernel ResourceApplyGradientDescent",
    }
    assert refused.keys() == got.keys()
    for name, begin in got.items():
        assert f"Got {begin}" in refused[name], refused[name]
        assert "on each of 2 ranks, which would train a copy each" in refused[name]


def test_a_tape_in_a_graph_differentiates() -> None:
    weights = tf.get_variable("weights", [4])
    with tensorflow.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(weights))
    assert tape.gradient(loss, [weights])
    again = tensorflow.recompute_grad(lambda x: tf.square(x) * 2.0)
    assert len(tf.gradients(again(weights + 1.0), [weights])) == 1


def test_an_unrecorded_gradient_does_not_train_without_a_plan(fails: Fails) -> None:
    weights = tf.get_variable("weights", [4])
    update = tf.raw_ops.ResourceApplyGradientDescent(
        var=weights.handle, alpha=0.1, delta=tf.ones([4])
    )
    with tf.Session() as session:
        session.run(weights)
        fails(
            StateError,
            "training is planned by its gradients",
            "ResourceApplyGradientDescent",
            "enable_graph_mode",
            lambda: session.run(update),
        )


def test_updates_of_other_kinds_are_an_error_at_the_end_without_a_plan() -> None:
    weights, steps = tf.get_variable("weights", [4]), plain.train.get_or_create_global_step()
    with plain.Session() as session:
        session.run(plain.global_variables_initializer())
        session.run(steps.assign_add(1))
        copies.check_end(ran_plan=False)
        session.run(weights.assign_sub(tf.ones([4])))
    copies.check_end(ran_plan=True)
    with pytest.raises(StateError, match="each of 2 ranks trained a copy"):
        copies.check_end(ran_plan=False)


def test_copies_may_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not copies.are_allowed(None)
    monkeypatch.setenv(copies.ALLOW_VARIABLE, "1")
    assert copies.are_allowed(None)
    assert not copies.are_allowed(False)
    monkeypatch.setenv(copies.ALLOW_VARIABLE, "yes")
    with pytest.raises(OptionError, match="Got 'yes'"):
        copies.are_allowed(None)


def test_nothing_of_tensorflow_is_changed_after_shutdown() -> None:
    tf.shutdown()
    assert plain.Session.run.__module__.startswith("tensorflow.")
    assert "eager_copies" not in tensorflow.GradientTape.gradient.__code__.co_filename
    assert "eager_copies" not in tensorflow.Variable.assign_add.__code__.co_filename
