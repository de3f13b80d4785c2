"""Variables to which a step only adds: sums and counts of metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tensoropt.frontend.keras_models.added_variables import added_variables
from tensoropt.frontend.steps.lookups import Lookups
from tensoropt.frontend.steps.step_graph import Captured, StepGraph
from tensoropt.frontend.steps.traced_step import TracedStep

ops = tf.raw_ops


def read(handle: Any) -> Any:
    return ops.ReadVariableOp(resource=handle, dtype=tf.float32)


def added(total: Any, count: Any, x: Any) -> None:
    """A sum as `assign_add` changes it, and another as an assignment does."""
    with tf.control_dependencies([ops.AssignAddVariableOp(resource=total, value=x)]):
        ops.AssignVariableOp(resource=count, value=tf.square(x) + read(count), name="last")


def divided(total: Any, count: Any, x: Any) -> None:
    """The step adds a value that depends on what it has added before."""
    with tf.control_dependencies([ops.AssignAddVariableOp(resource=count, value=x)]):
        ops.AssignAddVariableOp(resource=total, value=x / read(count), name="last")


def averaged(total: Any, count: Any, x: Any) -> None:
    """A moving average keeps a part of the old value."""
    ops.AssignVariableOp(resource=total, value=0.9 * read(total) + x, name="last")
    del count


def largest(total: Any, count: Any, x: Any) -> None:
    ops.AssignVariableOp(resource=total, value=tf.maximum(read(total), x), name="last")
    del count


def drawn(total: Any, count: Any, x: Any) -> None:
    ops.AssignAddVariableOp(resource=total, value=x + tf.random.uniform([]), name="last")
    del count


def conditional(total: Any, count: Any, x: Any) -> None:
    """A branch changes the variable."""

    def change() -> Any:
        with tf.control_dependencies([ops.AssignAddVariableOp(resource=total, value=x)]):
            return tf.constant(True)

    tf.identity(tf.cond(x > 0, change, lambda: tf.constant(False)), "last")
    del count


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (added, {"total", "count"}),
        *((each, None) for each in (divided, averaged, largest, drawn, conditional)),
        (lambda total, count, x: tf.identity(x + read(total) + read(count), "last"), set()),
    ],
)
def test_a_step_adds_to_its_variables_or_not(
    step: Callable[[Any, Any, Any], None], expected: set[str] | None
) -> None:
    home = StepGraph(trains=False)
    with home.graph.as_default():
        handles = [
            ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name=name, name=name)
            for name in ("total", "count")
        ]
        step(*handles, tf.compat.v1.placeholder(tf.float32, [], name="x"))
    captured = tuple(
        Captured(tf.Variable(0.0), handle.op.name, "", "", "", is_written=True)
        for handle in handles
    )
    lookups = Lookups(frozenset(), {}, (), frozenset(), None, ())
    traced = TracedStep(home, False, ("x",), None, (), ("last",), captured, lookups, ())
    found = added_variables(traced)
    assert (None if found is None else {each.handle for each in found}) == expected
