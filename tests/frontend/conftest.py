"""A fresh job and a fresh graph for every test; the scripts that several tests build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tensoropt as tf
from tensoropt import errors
from tensoropt.frontend.planning import training_step
from tensoropt.planner.options.planning_options import PlanningOptions

# Graph mode, from now on for the whole process: not only when the first test asks for a name.
tf.enable_graph_mode()
# No search is to end early, with another plan, since a machine is slow or kernels are compiled.
PlanningOptions.__init__.__kwdefaults__["search_seconds"] = 600.0


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    tf.shutdown()
    tf.reset_default_graph()
    yield
    tf.shutdown()
    tf.reset_default_graph()


@pytest.fixture
def graph() -> Iterator[Any]:
    """A job of two virtual ranks, and a graph of its own."""
    tf.init(devices=2)
    with tf.Graph().as_default() as graph:
        yield graph
    tf.shutdown()


@pytest.fixture
def regression() -> tuple[Any, Any, Any, Any]:
    """Placeholders of features [batch, 4] and targets [batch], loss, and training operator."""
    features = tf.placeholder(tf.float32, [None, 4], name="features")
    targets = tf.placeholder(tf.float32, [None], name="targets")
    weights = tf.get_variable("weights", [4, 8], initializer=tf.ones_initializer())
    hidden = tf.nn.relu(tf.matmul(features, weights))
    scores = tf.reduce_sum(hidden, axis=1)
    loss = tf.reduce_mean(tf.square(scores - targets), name="loss")
    return features, targets, loss, tf.GradientDescentOptimizer(1e-3).minimize(loss)


@pytest.fixture
def sums_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy fits where what the search adds up does: of steps as small as a test's, what is
    there for a moment only is the larger part."""
    monkeypatch.setattr(training_step, "dry_run_peak", lambda *_: None)


@pytest.fixture
def fails() -> Callable[[type[Exception], str, str, str, Callable[[], Any]], None]:
    """``fails(kind, rule, got, remedy, call)``: the call raises this error, whose text has these
    three parts in this order."""

    def checked(
        kind: type[Exception], rule: str, got: str, remedy: str, call: Callable[[], Any]
    ) -> None:
        with pytest.raises(kind) as caught:
            call()
        assert isinstance(caught.value, errors.TensorOptError)
        text = str(caught.value)
        before, found, after = text.partition("Got ")
        assert found, text
        assert rule in before, text
        assert got in after, text
        assert remedy in after[after.index(got) + len(got) :], text

    return checked
