"""`enable_graph_mode`, in processes of their own: it holds for a whole process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def check(python: Callable[..., Any], program: str) -> None:
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


def test_tensorflows_own_names_build_what_tensoropt_reads(python: Callable[..., Any]) -> None:
    check(
        python,
        """
import tensorflow as tf, tensoropt
held = tf.compat.v1  # another module than tf.compat.v1 is afterwards
from tensoropt.graph.from_tensorflow import GRADIENT_ATTRIBUTE
tensoropt.enable_graph_mode()
assert not tf.executing_eagerly()
assert tf.compat.v1.control_flow_v2_enabled() and tf.compat.v1.resource_variables_enabled()
weights = tf.compat.v1.get_variable("w", [2, 2])
for v1 in (held, tf.compat.v1):
    (gradient,) = v1.gradients(tf.reduce_sum(weights), [weights])
    assert gradient.op.get_attr(GRADIENT_ATTRIBUTE)
""",
    )


def test_a_second_call_leaves_what_the_script_has_chosen(python: Callable[..., Any]) -> None:
    check(
        python,
        """
import tensorflow as tf, tensoropt
tensoropt.enable_graph_mode()
tf.compat.v1.disable_resource_variables()
tensoropt.enable_graph_mode()
tensoropt.init()
assert not tf.compat.v1.resource_variables_enabled()
""",
    )


def test_looking_at_names_changes_nothing(python: Callable[..., Any]) -> None:
    check(
        python,
        """
import doctest, inspect, pickle
from unittest import mock
import numpy as np, tensorflow as tf, tensoropt
assert not any(hasattr(tensoropt, name) for name in ("x", "_repr_html_", "contrib"))
try:
    tensoropt.placeholdr
except AttributeError as error:
    assert str(error).endswith("neither has tf.compat.v1. Did you mean 'placeholder'?"), error
else:
    raise AssertionError
assert {"Session", "find_strategy"} <= dict(inspect.getmembers(tensoropt)).keys()
pickle.dumps(np.add)  # looks in all modules for an `add` that it is
doctest.DocTestFinder().find(tensoropt)
with mock.patch("tensoropt.find_strategy"), mock.patch.object(tensoropt.nn, "relu"):
    pass
from tensoropt import placeholder, train, float32, ConfigProto, Session
assert hasattr(tensoropt.nn, "relu") and not hasattr(tensoropt.nn, "rlu")
assert tensoropt.float32 is tf.float32 and tensoropt.TensorShape is tf.TensorShape
assert issubclass(tensoropt.errors.StateError, RuntimeError)
assert "AdamOptimizer" in dir(train)
gradients = tf.compat.v1.gradients
assert tf.executing_eagerly() and int(tf.constant(1)) == 1
tensoropt.enable_graph_mode  # and here, where operators ran, it could not be turned on
tensoropt.run, tensoropt.gradients
assert tf.compat.v1.gradients is gradients
""",
    )


def test_the_first_use_of_a_name_turns_graph_mode_on(python: Callable[..., Any]) -> None:
    for use in (
        "placeholder(tensoropt.float32, [2])",
        "train.get_or_create_global_step()",
        "Session()",
        "GradientDescentOptimizer()",
        "Variable",
        "gradients",
    ):
        later = "([], [])" if use == "gradients" else ""
        check(
            python,
            f"""
import tensorflow as tf, tensoropt
assert tensoropt.rank() == 0 and tf.executing_eagerly()
tensoropt.{use}{later}
assert not tf.executing_eagerly()
assert tensoropt.placeholder is tf.compat.v1.placeholder and tensoropt.nn is tf.compat.v1.nn
assert tf.compat.v1.gradients is tensoropt.gradients
""",
        )
