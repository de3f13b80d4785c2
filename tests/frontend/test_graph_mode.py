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
from tensoropt.graph.from_tensorflow import GRADIENT_ATTRIBUTE
tensoropt.enable_graph_mode()
assert not tf.executing_eagerly()
assert tf.compat.v1.control_flow_v2_enabled() and tf.compat.v1.resource_variables_enabled()
weights = tf.compat.v1.get_variable("w", [2, 2])
(gradient,) = tf.compat.v1.gradients(tf.reduce_sum(weights), [weights])
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
