"""If TensorFlow leaves out operators of a run, the run is an error."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.execution.lowering.draws import Draws, ProgramDraws
from tensoropt.execution.runtime.program import Program
from tensoropt.execution.world.rank_session import RankSession
from tensoropt.graph.operator import Graph

CONFIG = tf.compat.v1.ConfigProto()


def test_what_waits_for_itself_is_told() -> None:
    """oneDNN's one kernel for a convolution and its bias, which waits for the convolution."""
    target, checks = tf.Graph(), None
    with target.as_default():
        made = tf.nn.conv2d(
            tf.random.normal([2, 4, 4, 8]), tf.random.normal([3, 3, 8, 8]), 1, "SAME"
        )
        with tf.control_dependencies([made]):
            bias = tf.random.normal([8])
        draws = ProgramDraws(Graph({}), 1)
        biased = tf.nn.bias_add(made, bias)

    def run(fetched: dict[str, Any], *operations: tf.Operation) -> Any:
        session = RankSession(target, CONFIG, True, 0)
        program = Program(session, Graph({}), {}, fetched, operations, (), draws, checks)  # type: ignore[arg-type]
        return program.run({}, Draws())[0]

    assert run({"bias": bias})["bias"].shape == (8,)
    for asked in ({"biased": biased}, biased.op), ({}, biased.op):
        with pytest.raises(GraphError, match="wait for each other in a circle"):
            run(*asked)
