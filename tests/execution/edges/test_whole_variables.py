"""Operators that need a split variable whole work on a copy, which is freed after the step."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import executor_of, random_prices

v1 = tf.compat.v1

tensoropt.enable_graph_mode()


@pytest.mark.parametrize("resource", [True, False])
def test_the_copy_is_freed(resource: bool) -> None:
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        start = np.arange(64.0, dtype=np.float32).reshape(8, 8)
        variable = v1.get_variable("v", initializer=start)
        changed = variable[1:6:2, 3:].assign(np.full([3, 5], 7.0, np.float32))
    planned = {"v": Configuration(((0, 1), ()))}
    executor = executor_of(graph, Mesh.of(4), planned, random_prices(0))
    for _ in range(2):  # a freed copy is filled again
        executor.run([], [changed.op.name], {})
    start[1:6:2, 3:] = 7.0
    name = "v/Read/ReadVariableOp:0" if resource else "v/read:0"
    np.testing.assert_array_equal(executor.run([name], [], {})[name], start)
    session = executor._session
    copies = [
        operation.outputs[0]
        for operation in session.graph.get_operations()
        if operation.type in ("VarHandleOp", "VariableV2")
        and operation.get_attr("shared_name").startswith(b"whole")
    ]
    assert len(copies) == 4
    with session.graph.as_default():
        kept = [
            tf.raw_ops.VarIsInitializedOp(resource=copy) if resource else tf.identity(copy)
            for copy in copies
        ]
    assert [np.sum(value) for value in session.opened.run(kept)] == [0] * 4
    executor.close()
