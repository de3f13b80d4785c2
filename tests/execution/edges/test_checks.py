"""A check that fails on one rank of several: every rank raises it, and no variable has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt as tf
from tensoropt.execution.edges.checks import checks_of
from tensoropt.graph.from_tensorflow import import_graph

v1 = tensorflow.compat.v1
RANKS, BATCH = 4, 8


def _asserted(x: Any, _: Any) -> Any:
    with tf.control_dependencies([v1.Assert(tf.reduce_max(x) < 100.0, ["too large:", x])]):
        return tf.identity(x)


def _asserted_text(x: Any, _: Any) -> Any:
    with tf.control_dependencies([v1.Assert(tf.reduce_max(x) < 100.0, ["too large"])]):
        return tf.identity(x)


def _called(x: Any, raises: Any) -> Any:
    def look(values: Any) -> Any:
        if values.max() >= 100.0:
            raise raises("bad rows")
        return np.float32(1)

    factor = v1.py_func(look, [x], tf.float32)
    factor.set_shape([])
    return x * factor


CASES: dict[str, tuple[Callable[[Any, Any], Any], Any, type[Exception], str]] = {
    "numerics": (lambda x, _: tf.check_numerics(x, "rows"), np.inf, ValueError, "rows: Tensor had"),
    "numerics_of_a_gradient": (
        lambda x, _: 1 + tf.sqrt(tf.check_numerics(x, "squares")),
        0.0,
        ValueError,
        "values detected in gradient. squares",
    ),
    "assert": (_asserted, 100.0, ValueError, "assertion failed: [too large:]"),
    "assert_text": (_asserted_text, 100.0, ValueError, "assertion failed: [too large]"),
    "python": (_called, 100.0, ValueError, "ValueError: bad rows"),
    "python_at_the_end": (_called, 100.0, StopIteration, "StopIteration: bad rows"),
}


def model(check: Callable[[Any, Any], Any], raises: Any) -> tuple[Any, Any, Any]:
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    with tf.variable_scope("", use_resource=True):
        weights = tf.get_variable("weights", [4, 4], initializer=tf.ones_initializer())
        counter = tf.train.get_or_create_global_step()
    values = check(tf.matmul(x, weights), raises)
    loss = tf.reduce_mean(tf.square(values))
    return x, loss, tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss, counter)


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_step_that_fails_changes_nothing(case: str) -> None:
    check, bad, raises, text = CASES[case]
    good = np.random.default_rng(0).uniform(0.5, 1.0, (BATCH, 4)).astype(np.float32)
    wrong = good.copy()
    wrong[BATCH - 1] = bad  # the last rank's
    kind = tf.errors.OutOfRangeError if raises is StopIteration else tf.errors.InvalidArgumentError
    with v1.Graph().as_default(), v1.Session() as session:
        parts = model(check, raises)
        session.run(v1.global_variables_initializer())
        truth = [session.run([parts[1], parts[2]], {parts[0]: good})[0] for _ in range(3)]
    tf.shutdown()
    tf.init(devices=RANKS)
    with tf.Graph().as_default():
        x, loss, step = model(check, raises)
        plan = tf.find_strategy(batch_size=BATCH, algorithm="data_parallel", fetches=[step])
        tf.build_execution_graph(plan=plan)
        with tf.Session() as session:
            session.run(v1.global_variables_initializer())
            for expected in truth:
                with pytest.raises(kind) as caught:
                    session.run([loss, step], {x: wrong})
                assert text in str(caught.value)
                assert "This step has changed no variable" in str(caught.value)
                found = session.run([loss, step], {x: good})[0]
                assert found == pytest.approx(expected, rel=1e-5)
            assert session.run(tf.train.get_global_step()) == len(truth)
    tf.shutdown()


def test_a_python_functions_error_shows_though_its_values_break_something_else() -> None:
    def look(values: Any) -> Any:
        raise ValueError("bad rows")

    tf.shutdown()
    tf.init(devices=2)
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 4], name="x")
        rows = v1.py_func(look, [x], tf.float32)
        rows.set_shape([None])
        with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: bad rows"):
            session.run(tf.reshape(rows, [3, 4]), {x: np.ones((3, 4))})
    tf.shutdown()


def test_what_needs_a_change_is_not_checked_on_all_ranks() -> None:
    with v1.Graph().as_default() as graph:
        weights = v1.get_variable("weights", [4], use_resource=True)
        before = tensorflow.debugging.check_numerics(weights.read_value(), "a", name="before")
        changed = weights.assign_add(before)
        with tensorflow.control_dependencies([changed]):
            v1.check_numerics(weights.read_value(), "b", name="after")
        assert checks_of(graph, import_graph(graph, ["after"])) == {"before"}
